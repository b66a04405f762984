// scales: numbers to places and colours.

export function linear(low, high) {
  const width = high - low || 1;
  return { low, high, at: (value) => (value - low) / width, back: (share) => low + share * width };
}

export function logarithmic(low, high) {
  const [a, b] = [Math.log10(low), Math.log10(high)];
  const width = b - a || 1;
  return {
    low,
    high,
    log: true,
    at: (value) => (Math.log10(value) - a) / width,
    back: (share) => 10 ** (a + share * width),
  };
}

/** Logarithmic on both sides of zero, straight where |value| is below `near`. */
export function symmetric(low, high, near) {
  const bent = (value) => Math.sign(value) * Math.log1p(Math.abs(value) / near);
  const [a, b] = [bent(low), bent(high)];
  const width = b - a || 1;
  return { low, high, near, at: (value) => (bent(value) - a) / width };
}

/** Round numbers between the ends of a scale. */
export function ticksOf(scale, count = 5) {
  if (scale.near) return symmetricTicks(scale);
  if (scale.log) {
    const [a, b] = [Math.ceil(Math.log10(scale.low) - 1e-9), Math.floor(Math.log10(scale.high) + 1e-9)];
    if (b >= a) {
      const every = Math.max(1, Math.ceil((b - a + 1) / count));
      if (b - a < 3 && count >= 3) return between(scale);
      return Array.from({ length: Math.floor((b - a) / every) + 1 }, (_, n) => 10 ** (a + n * every));
    }
  }
  const rough = (scale.high - scale.low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const ticks = [];
  for (let n = Math.ceil(scale.low / step - 1e-9); n * step <= scale.high + step * 1e-9; n++) ticks.push(n * step);
  return ticks;
}

/** 1, 2 and 5 of each power of ten, where there are few powers. */
function between(scale) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(scale.low)); 10 ** power <= scale.high; power++) {
    for (const n of [1, 2, 5]) if (n * 10 ** power >= scale.low && n * 10 ** power <= scale.high) ticks.push(n * 10 ** power);
  }
  return ticks;
}

function symmetricTicks(scale) {
  const largest = Math.max(Math.abs(scale.low), Math.abs(scale.high));
  const powers = Math.log10(largest / scale.near);
  const every = Math.max(1, Math.ceil(powers / 4));
  const ticks = [0];
  for (let power = Math.floor(Math.log10(largest)); 10 ** power >= scale.near / 2; power -= every) {
    for (const n of powers < 2.5 ? [1, 2, 5] : [1]) {
      for (const tick of [n * 10 ** power, -n * 10 ** power]) if (tick >= scale.low && tick <= scale.high) ticks.push(tick);
    }
  }
  return ticks.filter((tick) => !tick || Math.abs(tick) >= scale.near * 0.8);
}

// Distinct colours of equal weight for few curves, one set for each background.
export const FEW = {
  light: ["#2563a8", "#b4541a", "#26734d", "#8f3fa8", "#b8860b", "#c2255c", "#0b7285", "#5f6b1d", "#6741d9", "#8a5a44"],
  dark: ["#74b0f4", "#f2a46b", "#6fcf97", "#d59bf0", "#f0cf65", "#f48fb1", "#5fd0e0", "#c6d36a", "#b197fc", "#d8a48f"],
};

// Dark to bright, each step as large to the eye as the next; for a light background the other way round.
const GLOW = ["#0b0713", "#251255", "#5a167e", "#932b80", "#cb3e6f", "#f2705b", "#fcae6f", "#fdeaac"];
const INK = ["#f4f1ec", "#fbd9a6", "#f9a66c", "#ec6a5e", "#c53f73", "#8a2a80", "#50186f", "#1f0d3d"];
const DEPTH = ["#443a83", "#31688e", "#21908d", "#35b779", "#8fd744", "#fde725"];
const DEPTH_LIGHT = ["#3b1f73", "#3a4f8f", "#217590", "#1f8f75", "#4f9a2f", "#b5a100"];

// Dark to bright, as large a step to every eye, also one that does not tell red from green.
export const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];

export function mixed(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const at = Math.min(Math.floor(place), stops.length - 2);
  const part = (stop, channel) => parseInt(stop.slice(1 + 2 * channel, 3 + 2 * channel), 16);
  return [0, 1, 2].map((channel) => {
    const [a, b] = [part(stops[at], channel), part(stops[at + 1], channel)];
    return Math.round(a + (b - a) * (place - at));
  });
}

/** 256 colours of an image, from nothing to everything. */
export function palette(dark) {
  return Array.from({ length: 256 }, (_, n) => mixed(dark ? GLOW : INK, n / 255));
}

export function paletteStyle(dark) {
  return `linear-gradient(to right, ${(dark ? GLOW : INK).join(", ")})`;
}

export function depthStyle(dark) {
  return `linear-gradient(to right, ${(dark ? DEPTH : DEPTH_LIGHT).join(", ")})`;
}

/** A colour for each of so many curves: distinct for few, along the depth of the model for many. */
export function colours(count, dark) {
  if (count <= FEW.light.length) return FEW[dark ? "dark" : "light"].slice(0, count);
  return Array.from({ length: count }, (_, n) => `rgb(${mixed(dark ? DEPTH : DEPTH_LIGHT, n / (count - 1))})`);
}
