// onsets: where findings begin, marked on an axis of steps by their numbers.

import { rankOf } from "./words.js";

const TAG = 8;
const APART = 18;

/** The colour of a severity. */
export function levelInk(ink, level) {
  return { error: ink.bad, warning: ink.warn, note: ink.note }[level] ?? ink.soft;
}

/** The onsets of findings: [{step, level, number}], numbered as they are listed; of causes only, and of no notes. */
export function onsetsOf(findings) {
  const all = (findings ?? []).map(({ step, severity }, n) => ({ step, level: severity, number: n + 1 }));
  return all.filter(({ level }) => level !== "note");
}

/** Tags that would lie over each other are one: [{from, to, level, numbers}], by where they are. */
function together(placed) {
  const found = [];
  for (const { x, level, number } of placed) {
    const last = found.at(-1);
    if (last && x - last.to < APART) {
      last.numbers.push(number);
      last.to = x;
      if (rankOf(level) < rankOf(last.level)) last.level = level;
    } else found.push({ from: x, to: x, level, numbers: [number] });
  }
  return found;
}

/** Draws a dashed line from `top` to `bottom` for each onset, and its number above; `place` turns a step into x. */
export function drawOnsets(frame, onsets, place, top, bottom) {
  const { context, box, ink } = frame;
  const placed = onsets.map((one) => ({ ...one, x: place(one.step) })).filter(({ x }) => x >= box.left - 1 && x <= box.right + 1);
  placed.sort((a, b) => a.x - b.x);
  context.save();
  context.lineWidth = 1.5;
  context.setLineDash([4, 3]);
  for (const { x, level } of [...placed].sort((a, b) => rankOf(b.level) - rankOf(a.level))) {
    const at = Math.round(x) + 0.5;
    context.strokeStyle = levelInk(ink, level);
    context.beginPath();
    context.moveTo(at, top);
    context.lineTo(at, bottom);
    context.stroke();
  }
  context.font = "600 11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const { from, to, level, numbers } of together(placed)) {
    numbers.sort((a, b) => a - b);
    const text = numbers.length > 2 ? `${numbers[0]}…` : numbers.join(",");
    const wide = Math.max(2 * TAG, context.measureText(text).width + 8);
    const left = Math.min(Math.max((from + to) / 2 - wide / 2, box.left - TAG), frame.width - wide);
    context.fillStyle = levelInk(ink, level);
    context.beginPath();
    context.roundRect(left, top - 2 * TAG, wide, 2 * TAG, TAG);
    context.fill();
    context.fillStyle = ink.panel;
    context.fillText(text, left + wide / 2, top - TAG + 0.5);
  }
  context.restore();
}

/** The chosen step: a line through a chart. */
export function drawStep(frame, x, top, bottom) {
  if (!Number.isFinite(x) || x < frame.box.left - 1 || x > frame.box.right + 1) return;
  const { context, ink } = frame;
  context.save();
  context.strokeStyle = ink.text;
  context.globalAlpha = 0.55;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, top);
  context.lineTo(Math.round(x) + 0.5, bottom);
  context.stroke();
  context.restore();
}
