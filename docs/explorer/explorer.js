"use strict";
/* The page: controls that are the URL's hash, and four charts of what numbers.js computes. */

const at = (id) => document.getElementById(id);
const SIZES = Object.keys(DATA.gamma);
const hiddenKeys = new Set();
const ALL_PRIORS = [...at("prior").options].map((option) => ({ value: option.value, text: option.text }));
const SOLVER = document.querySelector("meta[name=solver]")?.content; // the site's build puts it there if it has one
const computed = new Map(); // by setting: what took a linear program
let setting = settingOf({});

/* ---- the steps of the sliders; a box takes any number ---- */

const STEPS = {
  K: () => (setting.voters === "private" ? SIZES : ["5", "11", "25", "50", "51", "100", "101", "250", "500", "1000"]),
  m: () => range(1, Math.max(1, Math.floor((Number(setting.K) + 1) / 2) || 1)).map(String),
  epsilon: () => (setting.voters === "private" ? DATA.epsilons : ["0.05", "0.1", "0.2", "0.3", "0.5", "0.75", "1", "1.5", "2", "3", "5"]),
  delta: () => (setting.voters === "private" ? DATA.deltas : ["0", "1e-8", "1e-7", "1e-6", "1e-5", "1e-4", "1e-3"]),
  overlap: () => [...range(1, Math.max(0, (Number(setting.K) || 1) - 1)).map(String), "all"],
  queries: () => ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1000", "5000", "10000"],
  classes: () => ["2", "3", "4", "5", "7", "10", "20", "50", "100"],
  sampled: () => ["0.001", "0.002", "0.004", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"],
  total: () => ["0.5", "1", "1.5", "2", "3", "4", "6", "8"],
  total_delta: () => ["1e-6", "1e-5", "1e-4", "1e-3", "1e-2"],
};
const nearest = (steps, text) => {
  const value = text === "all" ? Infinity : Number(text);
  const place = steps.findIndex((step) => (step === "all" ? Infinity : Number(step)) >= value);
  return place < 0 ? steps.length - 1 : place;
};

function change(changes) {
  setting = settingOf({ ...setting, ...changes });
  if (setting.overlap === String(setting.K)) setting.overlap = "all";
  const words = Object.entries(setting).filter(([key]) => key === "voters" || key in DEFAULTS[setting.voters]);
  history.replaceState(null, "", `#${new URLSearchParams(words)}`);
  render();
}

function readHash() {
  setting = settingOf(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  render();
}

for (const control of document.querySelectorAll(".control[data-key]")) {
  const key = control.dataset.key;
  at(`${key}-range`).addEventListener("input", (event) => {
    const chosen = { [key]: STEPS[key]()[Number(event.target.value)] };
    const most = Math.floor((Number(chosen.K) + 1) / 2); // the packaged tables end there
    if (key === "K" && Number(setting.m) > most) chosen.m = String(most);
    if (key === "K" && Number(setting.overlap) >= Number(chosen.K)) chosen.overlap = "all";
    change(chosen);
  });
  at(`${key}-box`).addEventListener("change", (event) => change({ [key]: event.target.value.trim() }));
}
for (const key of ["shape", "prior"]) at(key).addEventListener("change", (event) => change({ [key]: event.target.value }));
for (const radio of document.querySelectorAll("input[name=voters]"))
  radio.addEventListener("change", () => {
    setting = settingOf({ voters: radio.value });
    change({});
  });
at("controls").addEventListener("submit", (event) => event.preventDefault());
function copies(button, shownAt, textOf) {
  const words = at(button).textContent;
  at(button).addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(textOf());
      at(button).textContent = "Copied";
      setTimeout(() => (at(button).textContent = words), 1500);
    } catch {
      getSelection().selectAllChildren(at(shownAt)); // no clipboard here: the text is marked instead
    }
  });
}
copies("copy", "command", () => at("command").textContent);
copies("copy-link", "link", () => at("link").href);

/* ---- drawing ---- */

function element(name, attributes = {}, ...children) {
  const isSvg = ["svg", "path", "line", "text", "rect", "circle", "g", "title"].includes(name);
  const made = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const DASHES = { ours: "", constant: "", randomized_response: "2 3", subsampling: "7 3", double_subsampling: "", gnmax: "9 3 2 3",
  lnmax: "2 2", exponential_mechanism: "5 2", permute_and_flip: "" };
const stroke = (key) => ({
  stroke: `var(--${key})`, "stroke-width": key === "ours" ? 3 : 1.8, "stroke-dasharray": DASHES[key], fill: "none", "stroke-linejoin": "round",
});

/* About five round numbers between two numbers. */
function ticks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(high - low > 2 ? 1 : 0, power * [1, 2, 5, 10].find((factor) => factor * power >= rough));
  return range(Math.ceil(low / step), Math.floor(high / step + 1e-9)).map((place) => Number((place * step).toPrecision(12)));
}

/* 1, 2, 5, 10, … between two numbers. */
const logarithmicTicks = (low, high) => range(0, 3).flatMap((power) => [1, 2, 5].map((factor) => factor * 10 ** power)).filter((tick) => tick >= low && tick <= high);

const WIDTH = 460, HEIGHT = 300, LEFT = 50, RIGHT = 12, TOP = 10, BOTTOM = 42;

/* Lines of (x, y), ours on top. */
function lineChart(svg, series, { x, y, xLabel, yLabel, isLogarithmic = false }) {
  const scaled = isLogarithmic ? Math.log : (value) => value;
  const across = (value) => LEFT + ((scaled(value) - scaled(x[0])) / (scaled(x[1]) - scaled(x[0]) || 1)) * (WIDTH - LEFT - RIGHT);
  const up = (value) => HEIGHT - BOTTOM - ((value - y[0]) / (y[1] - y[0])) * (HEIGHT - TOP - BOTTOM);
  const parts = [];
  for (const tick of ticks(...y)) {
    parts.push(element("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: up(tick), y2: up(tick) }));
    parts.push(element("text", { x: LEFT - 6, y: up(tick) + 4, "text-anchor": "end" }, shown(tick)));
  }
  for (const tick of isLogarithmic ? logarithmicTicks(...x) : ticks(...x)) parts.push(element("text", { x: across(tick), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, shown(tick)));
  parts.push(element("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle", class: "soft" }, xLabel));
  parts.push(element("text", { x: 12, y: (HEIGHT - BOTTOM) / 2, "text-anchor": "middle", class: "soft", transform: `rotate(-90 12 ${(HEIGHT - BOTTOM) / 2})` }, yLabel));
  for (const { key, name, points } of [...series].reverse()) {
    const visible = points.map(([a, b]) => [across(a), up(Math.max(y[0], b))]);
    const line = element("path", { ...stroke(key), d: `M${visible.map((point) => point.join(" ")).join("L")}` }, element("title", {}, name));
    parts.push(line);
    if (points.length <= 32)
      visible.forEach(([a, b], i) =>
        parts.push(element("circle", { cx: a, cy: b, r: key === "ours" ? 3.5 : 2.2, fill: `var(--${key})` }, element("title", {}, `${name}: ${shown(points[i][1], 6)} at ${points[i][0]}`))),
      );
  }
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.replaceChildren(...parts);
}

/* A bar for each mechanism, its name above it and its number at its end. */
function barChart(svg, bars, share, label) {
  const parts = [];
  bars.forEach(({ key, name, value }, i) => {
    const top = 6 + i * 38;
    parts.push(element("text", { x: 2, y: top + 11 }, name));
    parts.push(element("text", { x: WIDTH - 2, y: top + 11, "text-anchor": "end" }, label(value)));
    parts.push(element("rect", { x: 2, y: top + 16, width: WIDTH - 4, height: 12, fill: "var(--wash)" }));
    parts.push(element("rect", { x: 2, y: top + 16, width: Math.max(0, Math.min(1, share(value))) * (WIDTH - 4), height: 12, fill: `var(--${key})` }));
  });
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${12 + bars.length * 38}`);
  svg.replaceChildren(...parts);
}

/* ---- the page for a setting ---- */

const SOURCES = {
  browser: "Ours was solved here, in your browser: the optimum of this page's floating point program, not proven. The command proves one.",
  classes: `The shares are means over ${DRAWN} histograms drawn under what is believed, the same ones for all.`,
  table: "Ours is a packaged noise function, proven for this setting.",
  "closed form": "Ours is the closed form: the best there is for one answer at this cost, at every margin, whatever is believed of the voters.",
  "no noise": "No noise is needed: a person's data reach at most m voters, whose answers together are as private as is asked.",
  none: "No table for this setting; the command below computes and proves it. What needs no table is shown.",
  stored: `Private voters have tables for K = ${SIZES.join(", ")}; whole m up to (K + 1)/2; ε = ${DATA.epsilons.join(", ")}; Δ = ${DATA.deltas.join(", ")}; overlap all.`,
};
const ORIGINS = { browser: "solved in this browser", table: "a packaged table", "closed form": "the closed form", "no noise": "the bare majority" };

function showControls() {
  for (const part of document.querySelectorAll("[data-only], [data-when]")) part.hidden = Boolean(part.dataset.only) && part.dataset.only !== setting.voters;
  for (const radio of document.querySelectorAll("input[name=voters]")) radio.checked = radio.value === setting.voters;
  for (const key of Object.keys(STEPS)) {
    const steps = STEPS[key]();
    const slider = at(`${key}-range`);
    slider.min = 0;
    slider.max = steps.length - 1;
    slider.value = nearest(steps, setting[key]);
    slider.setAttribute("aria-valuetext", setting[key] ?? "");
    at(`${key}-box`).value = setting[key] ?? "";
  }
  if (setting.shape) at("shape").value = setting.shape;
  const [many, isOfMore] = [Number(setting.queries) > 1, Number(setting.classes) > 2];
  for (const part of document.querySelectorAll("[data-when]")) part.hidden ||= !{ one: !many, many, two: !isOfMore, more: isOfMore }[part.dataset.when];
  const prior = at("prior");
  const fitting = ALL_PRIORS.filter(({ value }) => value.startsWith("dirichlet:") === isOfMore);
  prior.replaceChildren(...fitting.map(({ value, text }) => new Option(text, value)));
  if (![...prior.options].some((option) => option.value === setting.prior)) prior.add(new Option(setting.prior, setting.prior));
  prior.value = setting.prior;
}

function showLegend(mechanisms) {
  const items = mechanisms.map(({ key, name, absent }) => {
    const box = element("input", { type: "checkbox" });
    box.checked = !hiddenKeys.has(key);
    box.disabled = Boolean(absent);
    box.addEventListener("change", () => {
      if (box.checked) hiddenKeys.delete(key);
      else hiddenKeys.add(key);
      showCharts(explore(setting, computed.get(nameOfSetting())));
    });
    const sample = element("svg", { viewBox: "0 0 34 12", "aria-hidden": "true" }, element("path", { ...stroke(key), d: "M0 6L34 6" }));
    return element("li", {}, element("label", {}, box, sample, absent ? `${name} (absent)` : name));
  });
  at("legend").replaceChildren(...items);
}

const LEAST = 1e-12; // an expected error below is rounding
const errorText = (value) => (value === 0 ? "0" : value < LEAST ? `< ${LEAST}` : shown(value));

function showCharts({ K, classes, levels, leads, mechanisms }) {
  const drawn = mechanisms.filter(({ key, absent }) => !absent && !hiddenKeys.has(key));
  const bars = (field) => drawn.map((mechanism) => ({ ...mechanism, value: mechanism[field] }));
  const least = classes > 2 ? 1 / classes : 0.5;
  barChart(at("share-chart"), bars("accuracy").sort((a, b) => b.value - a.value), (value) => (value - least) / (1 - least), (value) => value.toFixed(classes > 2 ? 3 : 5));
  if (classes > 2) {
    const series = drawn.map(({ key, name, by_share: points }) => ({ key, name, points }));
    lineChart(at("classes-chart"), series, { x: [1 / classes, 1], y: [0, 1], xLabel: "share of the votes of the leading class", yLabel: "Pr[truth]" });
    return;
  }
  const both = ({ key, name, gamma }) => {
    const right = gamma.map((value, i) => [levels[i], Math.max(0, value)]);
    const left = right.map(([l, value]) => [K - l, value]).reverse();
    return { key, name, points: [...left, ...(K % 2 === 0 ? [[K / 2, 0]] : []), ...right] };
  };
  const truth = ({ key, name, gamma, truth: values }) => ({ key, name, points: gamma.map((_, i) => [leads[i], values[i]]) });
  lineChart(at("gamma-chart"), drawn.map(both), { x: [0, K], y: [0, 1], xLabel: "number of ones among the votes", yLabel: "γ" });
  const margin = "margin: votes by which the majority leads";
  const isLogarithmic = K > 31; // what differs is near the tie
  lineChart(at("truth-chart"), drawn.map(truth), { x: [leads[0], K], y: [0.5, 1], xLabel: isLogarithmic ? `${margin} (logarithmic)` : margin, yLabel: "Pr[truth]", isLogarithmic });
  const errors = bars("expected_error").sort((a, b) => a.value - b.value);
  const low = Math.floor(Math.log10(Math.max(LEAST, Math.min(0.1, ...errors.map(({ value }) => value))))) - 0.5;
  const length = (value) => (value < LEAST ? 0 : (Math.log10(value) - low) / (Math.log10(0.5) - low));
  barChart(at("error-chart"), errors, length, errorText);
}

function showTable(mechanisms) {
  const rows = mechanisms.map(({ key, name, absent, parameter, accuracy: share, expected_error: error }) => {
    const cells = absent ? ["–", "–", `absent: ${absent}`] : error === undefined ? [share.toFixed(3), "–", parameter] : [share.toFixed(5), errorText(error), key === "ours" ? ORIGINS[parameter] : parameter];
    return element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((text) => element("td", {}, text)));
  });
  at("rows").replaceChildren(...rows);
}

const nameOfSetting = () => JSON.stringify(setting);

/* What one answer costs and all of them, in words. */
function budgetText({ target, total, queries, m, classes }) {
  const pair = ({ epsilon, delta }) => `(${shown(epsilon, 6)}, ${shown(delta, 6)})`;
  const rate = setting.voters === "plain" ? Number(setting.sampled) : 1;
  const certain = rate < 1 ? `, for a person who certainly is in the sample ${pair(target)}` : "";
  if (queries === 1) return `The answer is to be ${pair(total)}-differentially private${certain}.`;
  const allowance = setting.voters === "private" && classes === 2 ? `: m = ${shown(m)}` : "";
  return `All ${queries.toLocaleString("en")} answers together are to be ${pair(total)}-differentially private. By optimal composition one may be ${pair(target)}-private${certain}${allowance}.`;
}

function remarkText(found) {
  const remarks = [SOURCES[found.source]];
  const { prior, voters } = setting;
  if (found.source === "table" && prior !== DATA.prior) remarks.push(`It was optimized for ${DATA.prior}; the command optimizes for what you believe, and errs no more.`);
  if (found.source === "none" && voters === "private") remarks.push(SOURCES.stored);
  if (voters === "plain" && Number(setting.sampled) < 1) remarks.push("For people who are rarely drawn the command looks closer, and may do better.");
  if (found.queries > 1) remarks.push("For many answers the command also tries laws that are best for many, and adds up their costs more closely.");
  return remarks.join(" ");
}

function render() {
  showControls();
  const found = explore(setting, computed.get(nameOfSetting()));
  show(found);
  if (found.source === "none" && SOLVER && found.K <= LIMITS.solved) improve();
}

function show(found) {
  at("numbers").textContent = JSON.stringify(found);
  const wrong = found.problems.length > 0;
  at("problem").hidden = !wrong;
  at("problem").textContent = found.problems.join(" ");
  at("shown").hidden = at("commands").hidden = wrong;
  at("remark").textContent = at("budget").textContent = "";
  if (wrong) return;
  at("budget").textContent = budgetText(found);
  at("remark").textContent = remarkText(found);
  at("command").textContent = found.command;
  at("link").href = `#${new URLSearchParams(setting)}`;
  showLegend(found.mechanisms);
  showCharts(found);
  showTable(found.mechanisms);
}

/* ---- the solver: HiGHS, compiled to WebAssembly, in a script beside the page that is loaded when it is first needed ---- */

let loading = null;
function solver() {
  loading ??= new Promise((resolve, reject) => {
    const script = element("script", { src: SOLVER });
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => reject(new Error("the solver could not be loaded")));
    document.head.append(script);
  }).then(async () => {
    const packed = Uint8Array.from(atob(SOLVER_PACKED), (character) => character.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const compiled = await WebAssembly.compile(await new Response(stream).arrayBuffer());
    return Module({ instantiateWasm: (imports, done) => void WebAssembly.instantiate(compiled, imports).then(done) });
  });
  return loading;
}

const pause = () => new Promise((resolve) => setTimeout(resolve));

/* Solve for the setting, and show the result if the setting is still the same. */
async function improve() {
  const name = nameOfSetting();
  at("remark").textContent = "Solving a linear program in your browser …";
  try {
    const ready = await solver();
    await pause();
    if (name !== nameOfSetting()) return;
    const problem = problemOf(setting);
    const weights = priorWeights(priorOf(setting.prior), problem.K);
    const stopped = async () => {
      await pause();
      if (name !== nameOfSetting()) throw new DOMException("another setting", "AbortError");
    };
    computed.set(name, await computedFor(problem, weights, ready, stopped));
    show(explore(setting, computed.get(name)));
  } catch (error) {
    if (error.name !== "AbortError") at("remark").textContent = `The solver failed here (${error.message}); the command computes it.`;
  }
}

addEventListener("hashchange", readHash);
readHash();
