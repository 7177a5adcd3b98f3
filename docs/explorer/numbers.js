"use strict";
/* What the page shows for one setting: γ, how often it tells the truth, and what its rivals do with the same budget.

   γ(l) is the probability of telling the true majority of l ones, else a fair coin; all arrays are about
   l = floor(K/2) + 1 … K. The formulas are those of darrm, where they stand with their sources and proofs:
   majority/baselines.py, priors.py, majority/closed_form.py, plan/noisy.py, plan/compared.py.
   Floating point, for illustration: what is proven are the tables in DATA, and nothing is proven here. */

const LIMITS = { K: 1000, exponent: 100, queries: 100000, classes: 100, solved: 101 };

/* ---- the setting: text as it is typed, and what is wrong with it ---- */

const DEFAULTS = {
  private: { K: "11", m: "3", epsilon: "0.1", delta: "1e-5", overlap: "all", shape: "free", prior: DATA.prior, classes: "2", queries: "1", total: "3", total_delta: "1e-3" },
  plain: { K: "250", epsilon: "0.5", delta: "1e-6", overlap: "1", prior: "common", classes: "2", queries: "1", sampled: "1" },
};
const DIRICHLET = "dirichlet:1"; // of more than two classes

/* Complete what a URL says to a setting. */
function settingOf(given) {
  const voters = given.voters in DEFAULTS ? given.voters : "private";
  const setting = { ...DEFAULTS[voters], ...given, voters };
  const isOfMore = Number(setting.classes) > 2;
  if (isOfMore !== setting.prior.startsWith("dirichlet:")) setting.prior = isOfMore ? DIRICHLET : DEFAULTS[voters].prior;
  return setting;
}

/* Read a decimal as Python would; NaN for anything else. */
const numberOf = (text) => (/^\d*\.?\d+(e[+-]?\d+)?$/i.test(String(text).trim()) ? Number(text) : NaN);

/* Return a sentence for everything that is wrong with a setting. */
function problemsOf(setting) {
  const found = [];
  const number = (name, label, allowed, isAllowed) => {
    if (!isAllowed(numberOf(setting[name]))) found.push(`${label} must be ${allowed}, got '${setting[name]}'.`);
  };
  const K = Number(setting.K);
  const isPrivate = setting.voters === "private";
  number("K", "K", `a whole number from 1 to ${LIMITS.K}`, (x) => Number.isInteger(x) && x >= 1 && x <= LIMITS.K);
  number("epsilon", "ε", `above 0 and at most ${LIMITS.exponent}`, (x) => x > 0 && x <= LIMITS.exponent);
  number("delta", isPrivate ? "Δ" : "δ", "at least 0 and below 1", (x) => x >= 0 && x < 1);
  if (setting.overlap !== "all")
    number("overlap", "the overlap", "a whole number from 1 to K, or all", (x) => Number.isInteger(x) && x >= 1 && x <= K);
  number("queries", "the questions", `a whole number from 1 to ${LIMITS.queries}`, (x) => Number.isInteger(x) && x >= 1 && x <= LIMITS.queries);
  number("classes", "the classes", `a whole number from 2 to ${LIMITS.classes}`, (x) => Number.isInteger(x) && x >= 2 && x <= LIMITS.classes);
  if (!isPrivate) number("sampled", "the probability to be drawn", "above 0 and at most 1", (x) => x > 0 && x <= 1);
  if (isPrivate && Number(setting.queries) > 1) {
    number("total", "the total ε", `above 0 and at most ${LIMITS.exponent}`, (x) => x > 0 && x <= LIMITS.exponent);
    number("total_delta", "the total δ", "at least 0 and below 1", (x) => x >= 0 && x < 1);
  }
  if (isPrivate) {
    number("m", "m", "from 1 to K", (x) => x >= 1 && x <= K);
    if (Number(setting.m) * Number(setting.epsilon) > LIMITS.exponent)
      found.push(`mε must be at most ${LIMITS.exponent}, got ${Number(setting.m) * Number(setting.epsilon)}.`);
    if (!DATA.shapes.includes(setting.shape)) found.push(`the shape must be ${DATA.shapes.join(" or ")}.`);
  }
  const concentration = concentrationOf(setting.prior);
  if (Number(setting.classes) > 2 && !(concentration > 0)) found.push("the prior of more than two classes must be dirichlet:A with A > 0.");
  if (!(Number(setting.classes) > 2) && priorOf(setting.prior) === null)
    found.push("the prior must be common, uniform:LOW,HIGH with 0.5 ≤ LOW ≤ HIGH ≤ 1 and HIGH > 0.5, or point:P with P ≠ 0.5.");
  return found;
}

/* ---- probabilities ---- */

const sum = (values) => values.reduce((total, value) => total + value, 0);
const range = (first, last) => Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
const levelsOf = (K) => range(Math.floor(K / 2) + 1, K);
const leadsOf = (K) => levelsOf(K).map((l) => 2 * l - K);

/* Walk from the mode both ways by ratios of neighbors, then normalize: entry j of low … high. */
function fromRatios(size, low, mode, high, up, down) {
  const law = new Array(size).fill(0);
  law[mode] = 1;
  for (let j = mode + 1; j <= high; j++) law[j] = law[j - 1] * up(j);
  for (let j = mode; j > low; j--) law[j - 1] = law[j] * down(j);
  const total = sum(law);
  return law.map((weight) => weight / total);
}

/* Pr[Bin(n, p) = k] for k = 0 … n. */
function binomial(n, p) {
  if (p === 0 || p === 1) return range(0, n).map((k) => (k === p * n ? 1 : 0));
  const mode = Math.min(n, Math.floor((n + 1) * p));
  const odds = p / (1 - p);
  return fromRatios(n + 1, 0, mode, n, (k) => ((n - k + 1) / k) * odds, (k) => k / (n - k + 1) / odds);
}

/* Pr[j ones among the drawn] for j = 0 … draws, drawn without replacement. */
function hypergeometric(population, ones, draws) {
  const zeros = population - ones;
  const low = Math.max(0, draws - zeros);
  const high = Math.min(draws, ones);
  const mode = Math.min(high, Math.max(low, Math.floor(((draws + 1) * (ones + 1)) / (population + 2))));
  const up = (j) => ((ones - j + 1) * (draws - j + 1)) / (j * (zeros - draws + j));
  const down = (j) => (j * (zeros - draws + j)) / ((ones - j + 1) * (draws - j + 1));
  return fromRatios(draws + 1, low, mode, high, up, down);
}

const logDensity = (x) => -0.5 * (x * x + Math.log(2 * Math.PI));

/* log Pr[Z ≥ x] of a standard normal Z: a series of positive terms near 0, a continued fraction beyond. */
function logUpperTail(x) {
  if (x < 0) return Math.log1p(-Math.exp(logUpperTail(-x)));
  if (x < 3) {
    let total = x;
    for (let term = x, n = 3; term > 1e-18 * total; n += 2) total += term *= (x * x) / n;
    return Math.log(0.5 - Math.exp(logDensity(x)) * total);
  }
  let fraction = x;
  for (let n = 200; n >= 1; n--) fraction = x + n / fraction;
  return logDensity(x) - Math.log(fraction);
}

/* The last number that is allowed between an allowed and a forbidden one, by geometric bisection. */
function lastAllowed(isAllowed, inside, outside) {
  for (let step = 0; step < 200; step++) {
    const middle = Math.sqrt(inside) * Math.sqrt(outside);
    if (middle === inside || middle === outside) break;
    if (isAllowed(middle)) inside = middle;
    else outside = middle;
  }
  return inside;
}

/* ---- what is believed about the voters ---- */

/* Read a prior's text; null unless the expected error is linear under it. */
function priorOf(text) {
  const [kind, numbers = ""] = String(text).split(":");
  const [low, high, more] = numbers.split(",").map(numberOf);
  if (text === "common") return { kind };
  if (kind === "point" && high === undefined && low <= 1 && low !== 0.5) return { kind, p: low };
  if (kind === "uniform" && more === undefined && low >= 0.5 && low <= high && high <= 1 && high > 0.5)
    return { kind, p: (low + high) / 2 };
  return null;
}

/* A of dirichlet:A. */
const concentrationOf = (text) => (String(text).startsWith("dirichlet:") ? numberOf(String(text).slice(10)) : NaN);

/* Pr[l ones] for l = 0 … K. */
function onesLaw(prior, K) {
  return prior.kind === "common" ? new Array(K + 1).fill(1 / (K + 1)) : binomial(K, prior.p);
}

/* E|α_l − α_{K−l}|, the weight of 1 − γ(l) in twice the expected error. */
function priorWeights(prior, K) {
  if (prior.kind !== "common") {
    const p = Math.max(prior.p, 1 - prior.p);
    const law = binomial(K, p);
    return levelsOf(K).map((l) => (p === 1 ? law[l] : -law[l] * Math.expm1((2 * l - K) * (Math.log1p(-p) - Math.log(p)))));
  }
  // 1 − 2·I_{1/2}(l + 1, K − l + 1) is the mass of Bin(K + 1, 1/2) strictly between K − l and l + 1
  const law = binomial(K + 1, 0.5);
  return levelsOf(K).map((l) => (2 * sum(law.slice(K - l + 1, l + 1))) / (K + 1));
}

const expectedError = (gamma, weights) => 0.5 * sum(gamma.map((value, i) => weights[i] * (1 - Math.max(0, value))));

/* How often the answer is the majority; at a tie both are right. */
function shareRight(gamma, ones) {
  const K = ones.length - 1;
  const told = sum(levelsOf(K).map((l, i) => ((ones[l] + ones[K - l]) * (1 + gamma[i])) / 2));
  return told + (K % 2 === 0 ? ones[K / 2] : 0);
}

/* ---- ours ---- */

/* The floats of one size of the data, unpacked when first asked for. */
const unpacked = {};
function floatsOf(kind, K) {
  const name = `${kind} ${K}`;
  if (!(name in unpacked)) {
    const bytes = Uint8Array.from(atob(DATA[kind][K]), (character) => character.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    unpacked[name] = range(0, bytes.length / 8 - 1).map((i) => view.getFloat64(8 * i, true));
  }
  return unpacked[name];
}

/* The place of a problem among the packaged tables of its size; −1 if there is none. */
function placeOf(problem) {
  const { K, m, epsilon, delta, reached } = problem;
  const first = DATA.epsilons.findIndex((text) => Number(text) === epsilon);
  const second = DATA.deltas.findIndex((text) => Number(text) === delta);
  const isStored = problem.isPrivate && problem.queries === 1 && reached === K && K in DATA.gamma && Number.isInteger(m) && m <= (K + 1) / 2;
  if (!isStored || first < 0 || second < 0) return -1;
  return ((m - 1) * DATA.epsilons.length + first) * DATA.deltas.length + second;
}

/* The best release of non-private voters, one of whom a person reaches (majority/closed_form.py). */
function closedForm(K, epsilon, delta) {
  const growth = Math.exp(epsilon);
  const nextLie = (above) => Math.max(0, (above - delta) / growth, 1 - delta - growth * (1 - above));
  const lies = [K % 2 === 1 ? (1 - delta) / (1 + growth) : nextLie(0.5)];
  while (lies.length < K - Math.floor(K / 2)) lies.push(nextLie(lies[lies.length - 1]));
  return lies.map((lie) => Math.min(1, Math.max(0, 1 - 2 * lie)));
}

/* Our γ, and where it comes from; γ is null where the browser has none. */
function ours(problem, computed) {
  const { K, m, reached, isPrivate, target } = problem;
  const place = placeOf(problem);
  if (place >= 0) {
    const half = K - Math.floor(K / 2);
    const start = (place * DATA.shapes.length + DATA.shapes.indexOf(problem.shape)) * half;
    return { gamma: floatsOf("gamma", K).slice(start, start + half), source: "table" };
  }
  if (isPrivate && reached <= m) return { gamma: levelsOf(K).map(() => 1), source: "no noise" };
  if (!isPrivate && reached === 1) return { gamma: closedForm(K, target.epsilon, target.delta), source: "closed form" };
  if (computed?.gamma) return { gamma: computed.gamma, source: "browser" };
  return { gamma: null, source: "none" };
}

/* ---- rivals: each returns {gamma, parameter} or {absent} ---- */

/* γ of the majority of a sample of the voters. */
function sampled(K, draws) {
  const truth = (l) => sum(hypergeometric(K, l, draws).map((p, j) => p * Math.sign(2 * j - draws)));
  return levelsOf(K).map((l) => Math.min(1, Math.max(0, truth(l))));
}

const ON_VOTERS = "rests on the voters' own privacy";
const NOT_STORED = "its proof for this setting is not among the page's tables";

/* The four that are proved in Python: the two samples, the paper's constant, and the largest constant. */
function provenRivals(problem, computed) {
  const { K, m, isPrivate, reached, target } = problem;
  const place = placeOf(problem);
  const all = (value) => levelsOf(K).map(() => value);
  if (place >= 0) {
    const [single, double, paper, largest] = floatsOf("rivals", K).slice(4 * place, 4 * place + 4);
    return {
      subsampling: { gamma: sampled(K, m).map((value) => value * single), parameter: `${m} of ${K} voters` },
      double_subsampling: {
        gamma: (2 * m >= K + 1 ? all(1) : sampled(K, 2 * m - 1)).map((value) => value * double),
        parameter: `${Math.min(K, 2 * m - 1)} of ${K} voters`,
      },
      randomized_response: { gamma: all(paper), parameter: `γ = ${shown(paper)}` },
      constant: { gamma: all(largest), parameter: `γ = ${shown(largest)}` },
    };
  }
  if (isPrivate) {
    const absent = { absent: NOT_STORED };
    if (!computed) return { subsampling: absent, double_subsampling: absent, randomized_response: absent, constant: absent };
    const sample = (draws) => ({ gamma: sampled(K, draws).map((value) => value * computed.scales[draws]), parameter: `${draws} of ${K} voters` });
    return {
      subsampling: sample(drawsOf(problem, 1)),
      double_subsampling: sample(drawsOf(problem, 2)),
      randomized_response: absent,
      constant: { gamma: all(computed.constant), parameter: `γ = ${shown(computed.constant)}` },
    };
  }
  const absent = { absent: ON_VOTERS };
  // the worst step leads from one majority to the other; for even K and overlap 1 from a tie to a majority
  const least = K % 2 === 0 && reached === 1 ? 0 : 1;
  const largest = Math.min(1, (Math.expm1(target.epsilon) + 2 * target.delta) / (Math.exp(target.epsilon) + least));
  return {
    subsampling: absent,
    double_subsampling: absent,
    randomized_response: absent,
    constant: { gamma: all(largest), parameter: `γ = ${shown(largest)}` },
  };
}

/* How many voters sub-sampling looks at, or double sub-sampling. */
const drawsOf = ({ K, m }, times) => Math.min(K, Math.max(1, times * Math.floor(m + 1e-9) - (times - 1)));

/* What takes a linear program: our γ, the largest constant and the scales of the samples; null where it is not needed. */
async function computedFor(problem, weights, solver, pause) {
  if (ours(problem).source !== "none" || problem.K > LIMITS.solved || problem.classes > 2) return null;
  const found = { scales: {}, constant: scaleOf(problem, levelsOf(problem.K).map(() => 1)) };
  if (problem.isPrivate) for (const draws of [1, 2].map((times) => drawsOf(problem, times))) found.scales[draws] = scaleOf(problem, sampled(problem.K, draws));
  const { gamma, error, bound } = await bestGamma(solver, problem, weights, pause);
  return { ...found, gamma, error, bound };
}

/* GNMax with the least continuous Gaussian noise for which its noisy counts are (ε, δ)-private. */
function gnmax(problem) {
  const { K, reached, queries, rate } = problem;
  // Gaussian noise of many answers is that of one, √Q times as wide; of people who are rarely drawn it is charged as any law
  const target = rate === 1 ? problem.total : problem.target;
  if (target.delta === 0) return { absent: "Gaussian noise gives no (ε, 0)" };
  const sensitivity = Math.SQRT2 * reached * (rate === 1 ? Math.sqrt(queries) : 1);
  const isPrivate = (sigma) => {
    const a = sensitivity / (2 * sigma);
    const b = (target.epsilon * sigma) / sensitivity;
    const spent = Math.exp(logUpperTail(b - a)) - Math.exp(Math.min(target.epsilon + logUpperTail(a + b), 0));
    return spent <= target.delta;
  };
  let low = sensitivity;
  let high = sensitivity;
  while (!isPrivate(high)) high *= 2;
  while (isPrivate(low)) low /= 2;
  const sigma = lastAllowed(isPrivate, high, low);
  const gamma = leadsOf(K).map((lead) => 1 - 2 * Math.exp(logUpperTail(lead / (sigma * Math.SQRT2))));
  return { gamma, sigma, parameter: `σ = ${shown(sigma)} votes` };
}

/* LNMax with discrete Laplace noise of scale 2t/ε₀ on both counts; once, whatever is (ε₀, 0)-private is (ε, δ)-private with
   e^{ε₀} = (e^ε + δ)/(1 − δ), at the worst. */
function lnmax(problem) {
  const { K, reached } = problem;
  const rate = pureOf(problem) / (2 * reached);
  const a = Math.exp(-rate);
  const tail = (gap) => {
    const weight = -gap * Math.expm1(-rate) + (1 + a * a) / (1 + a) + a;
    return Math.exp(Math.log(weight) - 2 * Math.log1p(a) - rate * gap);
  };
  return { gamma: leadsOf(K).map((lead) => 1 - tail(lead) - tail(lead + 1)), parameter: `scale ${shown(1 / rate)} votes` };
}

/* A law of one parameter, with the largest one for which the answer itself is (ε, δ)-private. */
function selected({ K, reached, target }, lie) {
  const growth = Math.exp(target.epsilon);
  const isPrivate = (rate) => {
    const lies = range(0, K).map((ones) => lie((rate * Math.abs(2 * ones - K)) / (2 * reached)));
    const one = (ones) => (2 * ones > K ? 1 - lies[ones] : lies[ones]);
    const zero = (ones) => (2 * ones > K ? lies[ones] : 1 - lies[ones]);
    // a person moves the number of ones by t at most; t at once is the worst, as the law rises; zeros mirror ones
    return range(0, K - reached).every(
      (ones) =>
        one(ones + reached) <= growth * one(ones) + target.delta && zero(ones) <= growth * zero(ones + reached) + target.delta,
    );
  };
  let high = 1e-3;
  while (isPrivate(high)) high *= 2;
  const rate = lastAllowed(isPrivate, 1e-12, high);
  return { gamma: leadsOf(K).map((lead) => 1 - 2 * lie((rate * lead) / (2 * reached))), parameter: `ε₀ = ${shown(rate)}` };
}

/* ---- all of them ---- */

const MECHANISMS = [
  ["ours", "ours"],
  ["constant", "best constant γ"],
  ["randomized_response", "randomized response, the paper's"],
  ["subsampling", "subsampling"],
  ["double_subsampling", "double subsampling"],
  ["gnmax", "GNMax"],
  ["lnmax", "LNMax"],
  ["exponential_mechanism", "exponential mechanism"],
  ["permute_and_flip", "permute-and-flip"],
];

/* Write a number for a reader. */
function shown(value, digits = 4) {
  const rounded = Number(value.toPrecision(digits));
  return rounded === 0 || Math.abs(rounded) >= 1e-3 ? String(rounded) : rounded.toExponential();
}

/* The problem that a setting asks about, in numbers: `total` is for all answers, `target` what one of them may cost a person
   who certainly takes part. */
function problemOf(setting) {
  const [K, epsilon, delta, queries, classes] = ["K", "epsilon", "delta", "queries", "classes"].map((key) => Number(setting[key]));
  const isPrivate = setting.voters === "private";
  const question = { isPrivate, K, queries, classes, reached: setting.overlap === "all" ? K : Number(setting.overlap), rate: 1 };
  if (!isPrivate) {
    Object.assign(question, { total: { epsilon, delta }, rate: Number(setting.sampled) });
    return { ...question, target: targetOfPlain(question) };
  }
  // the paper's δ = 1 − (1 − Δ)^m
  const costOf = (m) => ({ epsilon: m * epsilon, delta: -Math.expm1(m * Math.log1p(-delta)) });
  question.total = queries === 1 ? costOf(Number(setting.m)) : { epsilon: Number(setting.total), delta: Number(setting.total_delta) };
  const m = queries === 1 ? Number(setting.m) : largestWithin(question, costOf, K);
  return { ...question, m, epsilon, delta, shape: setting.shape, target: costOf(m) };
}

/* The command that computes, proves and compares what a setting asks for. */
function commandOf(setting) {
  const { isPrivate, K, reached, queries, classes, rate } = problemOf(setting);
  const overlap = reached === K || rate < 1 ? "" : ` --overlap ${reached}`;
  const text = (name) => String(setting[name]).trim();
  const each = ` --epsilon ${text("epsilon")} --each-delta ${text("delta")}`;
  const budget = `${text("epsilon")},${text("delta")}`;
  if (queries === 1 && classes === 2 && rate === 1) {
    const shape = isPrivate && setting.shape !== "free" ? ` --shape ${setting.shape}` : "";
    const prior = setting.prior === DATA.prior ? "" : ` --prior ${setting.prior}`;
    return `python -m darrm.optimize --K ${K}${isPrivate ? `${each} --m ${text("m")}` : ` --non-private --target ${budget}`}${overlap}${shape}${prior}`;
  }
  const total = !isPrivate ? budget : queries > 1 ? `${text("total")},${text("total_delta")}` : Object.values(problemOf(setting).total).map((value) => Number(value.toPrecision(12))).join(",");
  const who = isPrivate ? each : rate < 1 ? ` --sampled ${text("sampled")}` : " --non-private";
  const of = classes > 2 ? ` --classes ${classes}` : "";
  return `python -m darrm.plan --K ${K}${who}${overlap}${of} --queries ${queries} --total ${total} --prior ${setting.prior}`;
}

/* Everything that is shown for a setting. */
function explore(setting, computed = null) {
  const problems = problemsOf(setting);
  if (problems.length) return { setting, problems };
  const problem = problemOf(setting);
  const about = { setting, problems, target: problem.target, total: problem.total, queries: problem.queries, m: problem.m, K: problem.K, classes: problem.classes, command: commandOf(setting) };
  if (problem.classes > 2) return { ...about, source: "classes", mechanisms: ofClasses(problem, concentrationOf(setting.prior)) };
  const prior = priorOf(setting.prior);
  const weights = priorWeights(prior, problem.K);
  const ones = onesLaw(prior, problem.K);
  const found = ours(problem, computed);
  const laws = {
    ours: found.gamma ? { gamma: found.gamma, parameter: found.source } : { absent: "no table for this setting; the command computes it" },
    ...provenRivals(problem, computed),
    gnmax: gnmax(problem),
    lnmax: lnmax(problem),
    exponential_mechanism: selected(problem, (exponent) => 1 / (1 + Math.exp(exponent))),
    permute_and_flip: selected(problem, (exponent) => 0.5 * Math.exp(-exponent)),
  };
  const mechanisms = MECHANISMS.map(([key, name]) => {
    const law = laws[key];
    if (law.absent) return { key, name, absent: law.absent };
    return {
      key,
      name,
      parameter: law.parameter,
      gamma: law.gamma,
      truth: law.gamma.map((value) => (1 + value) / 2),
      accuracy: shareRight(law.gamma, ones),
      expected_error: expectedError(law.gamma, weights),
    };
  });
  return { ...about, source: found.source, levels: levelsOf(problem.K), leads: leadsOf(problem.K), mechanisms };
}
