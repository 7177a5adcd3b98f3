"use strict";
/* The best γ of a setting that has no packaged table, and how far any γ has to be scaled: darrm's own program, row by row.

   Every row of [D, Lemma 5.1] that can be the worst has j voters at (hi, lo), or j at (lo, hi), and the others near 0 or 1
   (darrm/majority/full_set.py). With q = hi or lo, T(x) = E[g(x + Bin(j, q))], and `frozen` of the voters that the person
   does not reach at 1, it costs

       V(n, frozen) + c·V(N − n, held − frozen),    V(n, w) = max over a ≤ N − n, b ≤ n of E[T(w + n − Bin(b, Δ) + Bin(a, Δ))]

   for n of the N = reached − j voters near 1. Rows are added to a linear program until none is broken. Floating point, for
   illustration: the optimum is scaled until it is private, but its proof is Python's. */

const BROKEN = 1e-11; // a row that exceeds the budget by less is kept
const TAIL = 1e-18; // what a short binomial leaves out
const ROWS_A_ROUND = 60;
const MOST_ROUNDS = 100;
// as in lp_models/highs.py: rows and costs are handed over multiplied, so that absolute tolerances are small in our units
const SCALE = 1e4;
const OPTIONS = { output_flag: false, presolve: "off", simplex_scale_strategy: 0, small_matrix_value: 1e-12, primal_feasibility_tolerance: 1e-10, dual_feasibility_tolerance: 1e-10 };
const GAP = 1e-10; // a part of the error

/* What the rows of a problem need: corners, short binomials, and the budget c − 1 + 2δ. */
function geometryOf({ K, reached, isPrivate, epsilon, delta, target }) {
  const [hi, moved] = isPrivate ? [(Math.exp(epsilon) + delta) / (Math.exp(epsilon) + 1), delta] : [1, 0];
  const short = range(0, reached).map((n) => {
    const law = binomial(n, moved);
    let last = law.length - 1;
    while (last > 0 && law[last] < TAIL) last--;
    return law.slice(0, last + 1);
  });
  const budget = Math.expm1(target.epsilon) + 2 * target.delta;
  return { K, reached, held: K - reached, chances: hi === 0.5 ? [hi] : [hi, 1 - hi], moved, short, growth: Math.exp(target.epsilon), budget };
}

/* g at 0 … K of γ at floor(K/2) + 1 … K. */
function signed(K, gamma) {
  const g = new Array(K + 1).fill(0);
  gamma.forEach((value, i) => {
    const ones = Math.floor(K / 2) + 1 + i;
    g[ones] = value;
    g[K - ones] = -value;
  });
  return g;
}

/* E[T(n − Bin(b, Δ) + Bin(a, Δ))] about a place of T. */
function shifted({ short }, T, place, a, b) {
  let total = 0;
  short[b].forEach((down, i) => short[a].forEach((up, k) => (total += down * up * T[place - i + k])));
  return total;
}

/* V(n, w) for n = 0 … N: the best of the corners of (a, b), how much more any (a, b) may give, and its choice. */
function bestMoves(geometry, T, N, w) {
  return range(0, N).map((n) => {
    if (geometry.moved === 0) return { value: T[w + n], more: 0, a: 0, b: 0 };
    let best = { value: -Infinity };
    for (const [a, b] of [[0, 0], [N - n, 0], [0, n], [N - n, n]]) {
      const value = shifted(geometry, T, w + n, a, b);
      if (value > best.value) best = { value, a, b };
    }
    const near = Math.max(geometry.short[N].length, 1);
    let curve = 0;
    for (let x = Math.max(w + 1, w + n - near); x < Math.min(w + N, w + n + near + 1); x++) curve = Math.max(curve, Math.abs(T[x + 1] - 2 * T[x] + T[x - 1]));
    best.more = ((geometry.moved ** 2 * (n ** 2 + (N - n) ** 2)) / 8) * (curve + 4e-15);
    return best;
  });
}

/* V(n, w) over every pair (a, b). */
function allMoves({ short }, T, N, w, n) {
  let best = { value: -Infinity };
  for (let a = 0; a <= N - n; a++) {
    const raised = range(0, n).map((x) => short[a].reduce((total, up, k) => total + up * T[w + x + k], 0)); // E[T(w + x + Bin(a, Δ))]
    for (let b = 0; b <= n; b++) {
      const value = short[b].reduce((total, down, i) => total + down * raised[n - i], 0);
      if (value > best.value) best = { value, more: 0, a, b };
    }
  }
  return best;
}

/* The worst cost of a γ, and its dearest rows above the budget; `thorough` looks at every pair of moves that may matter. */
function separate(geometry, gamma, thorough) {
  const { K, reached, held, growth, budget, chances } = geometry;
  let worst = -Infinity;
  const rows = [];
  for (const chance of chances) {
    let T = signed(K, gamma);
    for (let j = 0; j <= reached; j++) {
      const N = reached - j;
      const moves = range(0, held).map((w) => bestMoves(geometry, T, N, w));
      for (let frozen = 0; frozen <= held; frozen++) {
        const costs = range(0, N).map((n) => {
          let own = moves[frozen][n];
          let other = moves[held - frozen][N - n];
          const most = own.value + own.more + growth * (other.value + other.more);
          if (thorough && own.more + other.more > 0 && most > Math.max(worst, budget)) {
            own = allMoves(geometry, T, N, frozen, n);
            if (own.value + growth * (other.value + other.more) > Math.max(worst, budget)) other = allMoves(geometry, T, N, held - frozen, N - n);
          }
          return { cost: own.value + growth * other.value, chance, j, N, frozen, n, own, other };
        });
        costs.forEach((row, n) => {
          worst = Math.max(worst, row.cost);
          const isPeak = row.cost > budget + BROKEN && row.cost >= (costs[n - 1]?.cost ?? -Infinity) && row.cost > (costs[n + 1]?.cost ?? -Infinity);
          if (isPeak) rows.push(row);
        });
      }
      T = T.slice(1).map((above, s) => (1 - chance) * T[s] + chance * above);
    }
  }
  rows.sort((one, two) => two.cost - one.cost);
  // the deepest, and others evenly spread: neighbors are nearly parallel
  const deep = rows.slice(0, ROWS_A_ROUND / 2);
  const rest = rows.slice(ROWS_A_ROUND / 2);
  const stride = Math.max(1, Math.ceil(rest.length / (ROWS_A_ROUND / 2)));
  return { worst, rows: [...deep, ...rest.filter((_, i) => i % stride === 0)] };
}

/* A row as coefficients of γ at floor(K/2) + 1 … K. */
function coefficientsOf(geometry, { chance, j, N, frozen, n, own, other }) {
  const { K, held, growth, short } = geometry;
  const law = binomial(j, chance);
  const g = new Array(K + 1).fill(0);
  const add = (factor, place, { a, b }) =>
    short[b].forEach((down, i) => short[a].forEach((up, k) => law.forEach((p, x) => (g[place - i + k + x] += factor * down * up * p))));
  add(1, frozen + n, own);
  add(growth, held - frozen + N - n, other);
  return levelsOf(K).map((ones) => g[ones] - g[K - ones]);
}

const nameOf = ({ chance, j, frozen, n, own, other }) => [chance, j, frozen, n, own.a, own.b, other.a, other.b].join(" ");

/* How far a γ that does not fall away from the tie has to be scaled: min(1, budget/worst); the ends of (a, b) hold its worst. */
function scaleOf(problem, gamma) {
  const geometry = geometryOf(problem);
  return Math.min(1, geometry.budget / Math.max(separate(geometry, gamma, false).worst, geometry.budget));
}

/* Minimize ½ Σ w(1 − γ) over the private γ; for "monotone" the variables are the steps of γ. `pause` lets the page breathe. */
async function bestGamma(solver, problem, weights, pause = async () => {}) {
  const geometry = geometryOf(problem);
  const size = weights.length;
  const isMonotone = problem.shape === "monotone";
  const over = (values) => (isMonotone ? values.map((_, i) => sum(values.slice(i))) : values);
  const gammaOf = (point) => {
    let total = 0;
    return point.map((value) => Math.min(1, Math.max(0, isMonotone ? (total += value) : value)));
  };
  const largest = Math.max(...weights);
  const model = solver.createModel();
  try {
    for (const [name, value] of Object.entries(OPTIONS)) model.options.set(name, value);
    const cost = over(weights.map((weight) => (-SCALE * weight) / largest));
    for (const value of cost) model.addCol(value, 0, 1, { indices: [], values: [] });
    const addRow = (values, limit) => {
      const factor = SCALE / Math.max(...values.map(Math.abs));
      model.addRow(-Infinity, factor * limit, { indices: range(0, size - 1), values: values.map((value) => factor * value) });
    };
    if (isMonotone) addRow(new Array(size).fill(1), 1);
    let best = { error: Infinity };
    const held = new Set();
    for (let round = 1; round <= MOST_ROUNDS; round++) {
      model.run();
      const gamma = gammaOf([...model.getSolution().colValue]);
      const bound = 0.5 * sum(weights) + (0.5 * largest * model.getObjectiveValue()) / SCALE;
      let found = separate(geometry, gamma, false);
      if (!found.rows.length) found = separate(geometry, gamma, true);
      const scale = Math.min(1, geometry.budget / Math.max(found.worst, geometry.budget));
      const scaled = gamma.map((value) => scale * value);
      const error = expectedError(scaled, weights);
      if (error < best.error) best = { gamma: scaled, error };
      best = { ...best, bound, rounds: round };
      const fresh = found.rows.filter((row) => !held.has(nameOf(row))); // a row that is there is broken by the solver's tolerance
      if (!fresh.length || best.error - bound < GAP * best.error) break;
      for (const row of fresh) {
        held.add(nameOf(row));
        addRow(over(coefficientsOf(geometry, row)), geometry.budget);
      }
      await pause();
    }
    return best;
  } finally {
    model.dispose();
  }
}
