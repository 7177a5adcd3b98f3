"use strict";
/* Many questions within one total, voters that draw their examples anew, and more than two classes.

   What several answers cost together is the optimal composition theorem [KOV15, Theorem 3.3] (darrm/loss/composition.py),
   of Gaussian noise its own exact sum; what a person who is rarely drawn pays is (ln(1 + q(e^ε − 1)), qδ) [BBG18]. */

const DRAWN = 1000; // histograms, the same ones for every mechanism
const NODES = 400; // of an integral

/* The δ at which `queries` answers, each (ε, δ)-private, are (total, δ)-private together. */
function composedDelta(epsilon, delta, queries, total) {
  const law = binomial(queries, 1 / (1 + Math.exp(-epsilon)));
  const told = sum(law.map((p, l) => p * Math.max(0, -Math.expm1(total - (2 * l - queries) * epsilon))));
  return -Math.expm1(queries * Math.log1p(-delta) + Math.log1p(-Math.min(told, 1 - 1e-16)));
}

/* The largest parameter for which answers that cost this a person who certainly takes part fit into the total. */
function largestWithin({ total, queries, rate }, costOf, most) {
  const fits = (parameter) => {
    const { epsilon, delta } = costOf(parameter);
    if (rate * delta >= 1) return false;
    return composedDelta(Math.log1p(rate * Math.expm1(epsilon)), rate * delta, queries, total.epsilon) <= total.delta;
  };
  return fits(most) ? most : lastAllowed(fits, 1e-9, most);
}

/* The ε of laws without a δ of their own. */
const pureOf = (problem) => largestWithin(problem, (epsilon) => ({ epsilon, delta: 0 }), LIMITS.exponent);

/* What one answer of non-private voters may cost; of several, half of δ is for the answers' own. */
function targetOfPlain(question) {
  const { total, queries, rate } = question;
  if (queries === 1) return { epsilon: Math.log1p(Math.expm1(total.epsilon) / rate), delta: Math.min(total.delta / rate, 0.5) };
  const delta = -Math.expm1(Math.log1p(-total.delta) / queries) / (2 * rate);
  return { epsilon: largestWithin(question, (epsilon) => ({ epsilon, delta }), LIMITS.exponent), delta };
}

/* ---- more than two classes ---- */

/* Numbers in [0, 1) that are the same on every machine. */
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/* The votes of K voters for each class, drawn from an urn to which every vote adds one ball of its class. */
function histogramsOf(K, classes, concentration) {
  const random = generator(1);
  return range(1, DRAWN).map(() => {
    const counts = new Array(classes).fill(0);
    const seen = [];
    for (let voter = 0; voter < K; voter++) {
      const place = random() * (voter + classes * concentration);
      const vote = place < voter ? seen[Math.floor(place)] : Math.floor(random() * classes);
      seen.push(vote);
      counts[vote]++;
    }
    return gapsOf(counts);
  });
}

/* How far the classes but one with the most votes are behind it, [gap, how many], and how many share the most votes. */
function gapsOf(counts) {
  const [gaps, top] = [new Map(), Math.max(...counts)];
  for (const count of counts) gaps.set(top - count, (gaps.get(top - count) ?? 0) + 1);
  const tops = gaps.get(0);
  gaps.set(0, tops - 1);
  return { tops, others: [...gaps].filter(([, many]) => many > 0).sort(([one], [two]) => one - two) };
}

/* Pr[the answer is one of the classes with the most votes] where the noise of each has a density and a distribution function. */
function rightOfNoise({ tops, others }, density, below, width) {
  let total = 0;
  for (let node = 1; node < NODES; node++) {
    const x = width * ((2 * node) / NODES - 1);
    let product = density(x);
    for (const [gap, many] of others) {
      if (product < 1e-9) break;
      product *= below(x + gap) ** many;
    }
    total += product;
  }
  return Math.min(1, tops * total * ((2 * width) / NODES));
}

/* Φ on a grid, for the many values of an integral. */
const NORMAL = range(-8000, 8000).map((place) => (place < 0 ? Math.exp(logUpperTail(-place / 1000)) : 1 - Math.exp(logUpperTail(place / 1000))));
function normalBelow(x) {
  const place = Math.min(15999, Math.max(0, 1000 * x + 8000));
  const low = Math.floor(place);
  return NORMAL[low] + (place - low) * (NORMAL[low + 1] - NORMAL[low]);
}

/* How often each law is right, by a function of the votes in falling order; and its parameter. */
function lawsOfClasses(problem) {
  const { classes, reached, target, isPrivate, K } = problem;
  const rate = pureOf(problem) / (2 * reached);
  const scale = 1 / rate;
  const chance = Math.min(1, (Math.expm1(target.epsilon) + classes * target.delta) / (Math.exp(target.epsilon) + classes - 1));
  const gaussian = gnmax(problem);
  const noise = (x) => (x < 0 ? 0.5 * Math.exp(x * rate) : 1 - 0.5 * Math.exp(-x * rate));
  return {
    ours: { absent: "the program over histograms is not solved here; the command does" },
    constant: isPrivate
      ? { absent: "its proof for this setting is not among the page's tables" }
      : { right: ({ tops }) => chance + ((1 - chance) * tops) / classes, parameter: `the plurality with probability ${shown(chance)}` },
    gnmax: gaussian.absent
      ? gaussian
      : {
          right: (gaps) => {
            const { sigma } = gaussian;
            const density = (x) => Math.exp(logDensity(x / sigma)) / sigma;
            return rightOfNoise(gaps, density, (x) => normalBelow(x / sigma), 8 * sigma);
          },
          parameter: gaussian.parameter,
        },
    lnmax: {
      right: (gaps) => rightOfNoise(gaps, (x) => 0.5 * rate * Math.exp(-Math.abs(x) * rate), noise, 20 * scale),
      parameter: `scale ${shown(scale)} votes`,
    },
    exponential_mechanism: {
      right: ({ tops, others }) => tops / (1 + sum(others.map(([gap, many]) => many * Math.exp(-rate * gap)))),
      parameter: `ε₀ = ${shown(rate * 2 * reached)}`,
    },
    permute_and_flip: {
      right: ({ tops, others }) => {
        // exponential noise: with u its tail, Π (1 − u·e^{−rate·gap}) over the others, by Simpson's rule
        const product = (u) => others.reduce((total, [gap, many]) => total * (1 - u * Math.exp(-rate * gap)) ** many, 1);
        const nodes = range(0, NODES).map((node) => product(node / NODES) * (node % NODES === 0 ? 1 : node % 2 ? 4 : 2));
        return Math.min(1, (tops * sum(nodes)) / (3 * NODES));
      },
      parameter: `ε₀ = ${shown(rate * 2 * reached)}`,
    },
  };
}

/* The mechanisms for more than two classes: the share of right answers over drawn histograms, and a curve over the votes of
   the leading class where the others share the rest evenly. */
function ofClasses(problem, concentration) {
  const { K, classes } = problem;
  const histograms = histogramsOf(K, classes, concentration);
  const leading = range(1, 24).map((step) => 1 / classes + (step / 24) * (1 - 1 / classes));
  const laws = lawsOfClasses(problem);
  return MECHANISMS.filter(([key]) => key in laws).map(([key, name]) => {
    const law = laws[key];
    if (law.absent) return { key, name, absent: law.absent };
    const even = (share) => gapsOf([share * K, ...new Array(classes - 1).fill(((1 - share) * K) / (classes - 1))]);
    const share = sum(histograms.map(law.right)) / DRAWN;
    return { key, name, parameter: law.parameter, accuracy: share, by_share: leading.map((part) => [part, law.right(even(part))]) };
  });
}
