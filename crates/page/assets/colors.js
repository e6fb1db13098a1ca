// Colors of nodes: the palettes, and the modes that choose among them.
// The hues are distinguishable with any kind of color vision; severities also have a shape.

const PALETTES = {
  light: {
    paper: "#ffffff", ink: "#1c2128", soft: "#59636e", edge: "#b3bcc6", crossing: "#c8641b", accent: "#1f6fb8", veil: 0.22,
    plain: ["#f1f3f5", "#a9b2bc"], port: ["#ffffff", "#6b7580"],
    engine: ["#d6e7f7", "#1f6fb8"], cpu: ["#fbe0c6", "#c8641b"], "cpu-or-gpu": ["#f1dcec", "#96458f"], unknown: ["#e9ebee", "#8a929c"],
    error: ["#f9d5cd", "#b8321c"], warning: ["#f8eabd", "#8f6a00"], note: ["#dbe7f1", "#4c7599"],
    cost: ["#f3f5f8", "#b9d2ea", "#5b9bd3", "#15549a", "#0b2f5c"], ulps: ["#f6f4f1", "#f3cfae", "#e08e50", "#b04a17", "#6b2408"],
  },
  dark: {
    paper: "#14181d", ink: "#e3e8ee", soft: "#96a1ad", edge: "#4a5562", crossing: "#e08f49", accent: "#6aaeea", veil: 0.2,
    plain: ["#232a33", "#566270"], port: ["#14181d", "#8a96a3"],
    engine: ["#17324d", "#4b9be0"], cpu: ["#472d17", "#e08f49"], "cpu-or-gpu": ["#40263d", "#c883c0"], unknown: ["#262c34", "#6d7783"],
    error: ["#4d211a", "#f0806a"], warning: ["#443713", "#e0b84a"], note: ["#1e3245", "#86b1d6"],
    cost: ["#1c232b", "#1d3f63", "#2d6cab", "#62a8e6", "#c2e0fb"], ulps: ["#24211f", "#573318", "#9a5420", "#dd8a46", "#fbd7b4"],
  },
};

const PROCESSORS = { engine: "Neural Engine", cpu: "CPU", "cpu-or-gpu": "CPU or GPU", unknown: "not known" };
const SEVERITIES = ["error", "warning", "note"];

function channels(color) {
  return [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
}

// A color between those of a ramp; `share` is from 0 to 1.
function between(ramp, share) {
  const place = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
  const low = Math.min(Math.floor(place), ramp.length - 2);
  const [a, b] = [channels(ramp[low]), channels(ramp[low + 1])];
  const mixed = a.map((x, i) => Math.round(x + (b[i] - x) * (place - low)));
  return "#" + mixed.map((x) => x.toString(16).padStart(2, "0")).join("");
}

function isDark(color) {
  const [r, g, b] = channels(color);
  return 0.299 * r + 0.587 * g + 0.114 * b < 140;
}

// The ramp position of a measure: logarithmic over four decades below the largest.
function logShare(value, most) {
  if (!(value > 0) || !(most > 0)) return 0;
  return Math.max(0, 1 + Math.log10(value / most) / 4);
}

// An error of half an ulp is one rounding, which every op may make.
const ROUNDING = 0.5;
// Errors from here on are no numbers: the op loses values, as by overflow.
const LOST = 1e300;

function errorShare(value, most) {
  if (!(value > ROUNDING)) return 0;
  return Math.log(value / ROUNDING) / Math.log(most / ROUNDING);
}

function ulpsText(value) {
  return value >= LOST ? "values lost" : count(+value.toPrecision(3)) + " ulps";
}

function measured(key, largest) {
  const [ramp, share] = key === "us" ? ["cost", logShare] : ["ulps", errorShare];
  return {
    style(node, palette) {
      if (node.kind) return palette.port;
      const value = node[key];
      const fill = value === undefined ? palette.plain[0] : between(palette[ramp], share(value, largest));
      return [fill, palette.plain[1]];
    },
    // Where the eye should go first: larger is more important.
    weight: (node) => node[key] || 0,
  };
}

// Each mode: its label, whether the data has it, the colors of a node, what is drawn above what.
function modes(data) {
  const all = data.graphs.flatMap((g) => g.nodes);
  const most = (key) => all.reduce((m, n) => Math.max(m, n[key] < LOST ? n[key] : 0), 0);
  const slowest = most("us");
  const worst = Math.max(most("ulps"), 1000);
  const audited = all.some((n) => n.ulps !== undefined);
  return {
    unit: {
      label: "processor", has: data.placements.length > 0,
      style: (node, palette) => (node.kind ? palette.port : palette[node.on || "unknown"]),
      weight: (node) => (node.kind ? 0 : node.on === "engine" ? 1 : 2),
    },
    finding: {
      label: "finding", has: true,
      style: (node, palette) => palette[node.severity || (node.kind ? "port" : "plain")],
      weight: (node) => (node.severity ? 3 - SEVERITIES.indexOf(node.severity) : 0),
    },
    cost: { label: "predicted time", has: slowest > 0, most: slowest, ...measured("us", slowest) },
    ulps: { label: "error in ulps", has: audited, most: worst, ...measured("ulps", worst) },
  };
}

function time(us) {
  if (us === 0) return "no time";
  if (us < 0.1) return "< 0.1 µs";
  if (us < 1000) return us.toFixed(1) + " µs";
  return us < 1e6 ? (us / 1000).toFixed(2) + " ms" : (us / 1e6).toFixed(2) + " s";
}

function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) [bytes, unit] = [bytes / 1000, unit + 1];
  return (unit ? bytes.toFixed(bytes < 10 ? 2 : 1) : bytes) + " " + units[unit];
}

const count = (n) => n.toLocaleString("en-US");
const several = (n, what) => count(n) + " " + what + (n === 1 ? "" : "s");
