"use strict";
/* The page: controls that are the URL's hash, and four charts of what numbers.js computes. */

const at = (id) => document.getElementById(id);
const SIZES = Object.keys(DATA.gamma);
const hiddenKeys = new Set();
let setting = settingOf({});

/* ---- the steps of the sliders; a box takes any number ---- */

const STEPS = {
  K: () => (setting.voters === "private" ? SIZES : ["5", "11", "25", "50", "51", "100", "101", "250", "500", "1000"]),
  m: () => range(1, Math.max(1, Math.floor((Number(setting.K) + 1) / 2) || 1)).map(String),
  epsilon: () => (setting.voters === "private" ? DATA.epsilons : ["0.05", "0.1", "0.2", "0.3", "0.5", "0.75", "1", "1.5", "2", "3", "5"]),
  delta: () => (setting.voters === "private" ? DATA.deltas : ["0", "1e-8", "1e-7", "1e-6", "1e-5", "1e-4", "1e-3"]),
  overlap: () => [...range(1, Math.max(0, (Number(setting.K) || 1) - 1)).map(String), "all"],
};
const nearest = (steps, text) => {
  const value = text === "all" ? Infinity : Number(text);
  const place = steps.findIndex((step) => (step === "all" ? Infinity : Number(step)) >= value);
  return place < 0 ? steps.length - 1 : place;
};

function change(changes) {
  setting = { ...setting, ...changes };
  if (setting.overlap === String(setting.K)) setting.overlap = "all";
  const words = Object.entries(setting).filter(([key]) => setting.voters === "private" || !["m", "shape"].includes(key));
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
at("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(at("command").textContent);
    at("copy").textContent = "Copied";
    setTimeout(() => (at("copy").textContent = "Copy"), 1500);
  } catch {
    getSelection().selectAllChildren(at("command")); // no clipboard here: the text is marked instead
  }
});

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
  table: "Ours is a packaged noise function, proven for this setting.",
  "closed form": "Ours is the closed form: the best there is at every margin, whatever is believed of the voters.",
  "no noise": "No noise is needed: a person's data reach at most m voters, whose answers together are as private as is asked.",
  none: "No table for this setting; the command below computes and proves it. What needs no table is shown.",
  stored: `Private voters have tables for K = ${SIZES.join(", ")}; whole m up to (K + 1)/2; ε = ${DATA.epsilons.join(", ")}; Δ = ${DATA.deltas.join(", ")}; overlap all.`,
};
const ORIGINS = { table: "a packaged table", "closed form": "the closed form", "no noise": "the bare majority" };

function showControls() {
  for (const part of document.querySelectorAll("[data-only]")) part.hidden = part.dataset.only !== setting.voters;
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
  const prior = at("prior");
  if (![...prior.options].some((option) => option.value === setting.prior)) prior.add(new Option(setting.prior, setting.prior));
  prior.value = setting.prior;
}

function showLegend(mechanisms) {
  const items = mechanisms.map(({ key, name, gamma }) => {
    const box = element("input", { type: "checkbox" });
    box.checked = !hiddenKeys.has(key);
    box.disabled = !gamma;
    box.addEventListener("change", () => {
      if (box.checked) hiddenKeys.delete(key);
      else hiddenKeys.add(key);
      showCharts(explore(setting));
    });
    const sample = element("svg", { viewBox: "0 0 34 12", "aria-hidden": "true" }, element("path", { ...stroke(key), d: "M0 6L34 6" }));
    return element("li", {}, element("label", {}, box, sample, gamma ? name : `${name} (absent)`));
  });
  at("legend").replaceChildren(...items);
}

const LEAST = 1e-12; // an expected error below is rounding
const errorText = (value) => (value === 0 ? "0" : value < LEAST ? `< ${LEAST}` : shown(value));

function showCharts({ K, levels, leads, mechanisms }) {
  const drawn = mechanisms.filter(({ key, gamma }) => gamma && !hiddenKeys.has(key));
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
  const bars = (field) => drawn.map((mechanism) => ({ ...mechanism, value: mechanism[field] }));
  barChart(at("share-chart"), bars("share_right").sort((a, b) => b.value - a.value), (value) => 2 * value - 1, (value) => value.toFixed(5));
  const errors = bars("expected_error").sort((a, b) => a.value - b.value);
  const low = Math.floor(Math.log10(Math.max(LEAST, Math.min(0.1, ...errors.map(({ value }) => value))))) - 0.5;
  const length = (value) => (value < LEAST ? 0 : (Math.log10(value) - low) / (Math.log10(0.5) - low));
  barChart(at("error-chart"), errors, length, errorText);
}

function showTable(mechanisms) {
  const rows = mechanisms.map(({ key, name, absent, parameter, share_right: share, expected_error: error }) => {
    const cells = absent ? ["–", "–", `absent: ${absent}`] : [share.toFixed(5), errorText(error), key === "ours" ? ORIGINS[parameter] : parameter];
    return element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((text) => element("td", {}, text)));
  });
  at("rows").replaceChildren(...rows);
}

function render() {
  showControls();
  const found = explore(setting);
  at("numbers").textContent = JSON.stringify(found);
  const wrong = found.problems.length > 0;
  at("problem").hidden = !wrong;
  at("problem").textContent = found.problems.join(" ");
  at("shown").hidden = at("command").parentElement.hidden = wrong;
  at("remark").textContent = at("budget").textContent = "";
  if (wrong) return;
  const { epsilon, delta } = found.target;
  at("budget").textContent = `The answer is to be (${shown(epsilon, 6)}, ${shown(delta, 6)})-differentially private.`;
  const other = found.source === "table" && setting.prior !== DATA.prior;
  at("remark").textContent = SOURCES[found.source] + (other ? ` It was optimized for ${DATA.prior}; the command optimizes for what you believe, and errs no more.` : "");
  if (found.source === "none" && setting.voters === "private") at("remark").textContent += ` ${SOURCES.stored}`;
  at("command").textContent = found.command;
  showLegend(found.mechanisms);
  showCharts(found);
  showTable(found.mechanisms);
}

addEventListener("hashchange", readHash);
readHash();
