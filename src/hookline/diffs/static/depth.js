// depth: the error of each place in the order in which it runs, over what rounding may do.

import { whole } from "./dom.js";
import { shortened } from "./names.js";
import { Chart, drawWord, drawX, drawY, room, xAt, yAt } from "./plot.js";
import { linear, logarithmic } from "./scales.js";
import { axisName, badness, differs, nameOf, told, wordOf } from "./says.js";

const TILTED = -Math.PI / 3;
const GUTTER = 24; // for what a logarithm has no place for: equal below, NaN, Inf and other shapes above
const NAME_WIDTH = 17;

/** `show({points, byStep, first, colour, chosen})`; a point is {at, x, place}. */
export class DepthChart extends Chart {
  constructor(label, pick) {
    super({
      height: (width) => (this.data.points.every(({ place }) => place.error === 0) ? 190 : width < 600 ? 290 : 330),
      label,
      paint: (frame) => this.#paint(frame),
      probe: (frame, x) => this.#nearest(frame, x),
      move: (frame, right, down) => this.#told((this.place ?? (right > 0 ? -1 : this.data.points.length)) + right + down),
      pick: () => pick(this.data.points[this.place].at),
    });
    this.data = { points: [] };
  }

  show(data) {
    this.data = data;
    this.place = null;
    this.redraw();
  }

  #paint(frame) {
    const { points, byStep } = this.data;
    frame.box = null;
    if (!points.length) return drawWord(frame, "nothing to draw");
    const { context, ink } = frame;
    const names = byStep ? [] : shortened(points.map(({ place }) => axisName(place)));
    const longest = Math.min(Math.max(0, ...names.map((name) => context.measureText(name).width)), 120);
    const equal = points.some(({ place }) => place.error === 0);
    const odd = points.some(({ place }) => !Number.isFinite(place.error));
    const foot = byStep ? 38 : 18 + longest * Math.sin(-TILTED);
    room(frame, { left: 76, top: 28 + (odd ? GUTTER : 0), bottom: foot + (equal ? GUTTER : 0) });
    frame.x = byStep ? linear(points[0].x - 0.5, points.at(-1).x + 0.5) : linear(-0.5, points.length - 0.5);
    frame.y = scaleOf(points);
    if (frame.y.some) drawY(frame, frame.y, frame.width > 600 ? "error" : "");
    this.#gutters(frame, equal, odd);
    this.#band(frame);
    if (byStep) this.#others(frame);
    else this.#line(frame);
    this.#marks(frame);
    this.#first(frame);
    if (byStep) {
      const box = frame.box;
      frame.box = { ...box, bottom: box.bottom + (equal ? GUTTER : 0) };
      drawX(frame, frame.x, "step", (value) => (Number.isInteger(value) ? whole(value || 0) : ""));
      frame.box = box;
    } else this.#names(frame, names, equal);
    context.fillStyle = ink.text;
  }

  /** Where a value is drawn. */
  #y(frame, value) {
    if (value === 0) return frame.box.bottom + GUTTER / 2;
    if (!Number.isFinite(value)) return frame.box.top - GUTTER / 2;
    return yAt(frame, frame.y, value);
  }

  #gutters({ context, ink, box }, equal, odd) {
    context.fillStyle = ink.soft;
    context.textAlign = "right";
    context.textBaseline = "middle";
    if (equal) context.fillText(this.data.points.some(({ place }) => place.error === 0 && differs(place)) ? "0" : "equal", box.left - 8, box.bottom + GUTTER / 2);
    if (odd) context.fillText("no number", box.left - 8, box.top - GUTTER / 2);
    context.strokeStyle = ink.line;
    context.beginPath();
    context.moveTo(box.left, box.bottom + (equal ? GUTTER : 0) + 0.5);
    context.lineTo(box.right, box.bottom + (equal ? GUTTER : 0) + 0.5);
    context.stroke();
  }

  /** What rounding may do, as an area; each place has its own. */
  #band(frame) {
    const { context, box } = frame;
    const { points, colour } = this.data;
    const gaps = points.slice(1).map(({ x }, n) => x - points[n].x);
    const half = Math.max((Math.min(...gaps, points.length > 1 ? Infinity : 1) * box.width) / (frame.x.high - frame.x.low) / 2, 1);
    context.fillStyle = colour(frame.ink);
    context.globalAlpha = 0.16;
    for (const { x, place } of points) {
      if (!(place.tolerance > 0)) continue;
      const [left, top] = [xAt(frame, frame.x, x), yAt(frame, frame.y, place.tolerance)];
      context.fillRect(left - half, top, 2 * half + 0.4, box.bottom - top);
    }
    context.globalAlpha = 1;
  }

  /** At each step the places that are not the worst. */
  #others(frame) {
    const { context, ink } = frame;
    context.fillStyle = ink.soft;
    context.globalAlpha = 0.6;
    for (const { x, others } of this.data.points) {
      for (const { error } of others) context.fillRect(xAt(frame, frame.x, x) - 1.5, this.#y(frame, error) - 1.5, 3, 3);
    }
    context.globalAlpha = 1;
  }

  #line(frame) {
    const { context } = frame;
    context.strokeStyle = this.data.colour(frame.ink);
    context.globalAlpha = 0.6;
    context.lineWidth = 1.2;
    context.beginPath();
    this.data.points.forEach(({ x, place }, n) => {
      const at = [xAt(frame, frame.x, x), this.#y(frame, place.error)];
      if (n) context.lineTo(...at);
      else context.moveTo(...at);
    });
    context.stroke();
    context.globalAlpha = 1;
    context.lineWidth = 1;
  }

  #marks(frame) {
    const { context, ink, box } = frame;
    const { points, colour, chosen } = this.data;
    const radius = Math.min(Math.max((0.42 * box.width) / points.length, 1.4), 3.6);
    for (const { x, place, at } of points) {
      const [left, top] = [xAt(frame, frame.x, x), this.#y(frame, place.error)];
      if (place.added > 0 && Number.isFinite(place.added)) {
        context.globalAlpha = place.born ? 1 : 0.45;
        diamond(context, left, yAt(frame, frame.y, place.added), place.born ? radius + 2 : radius, ink.second);
        context.globalAlpha = 1;
      }
      context.fillStyle = context.strokeStyle = differs(place) ? ink.bad : colour(ink);
      context.beginPath();
      context.arc(left, top, radius, 0, 2 * Math.PI);
      if (place.error === 0) context.stroke();
      else context.fill();
      if (at !== chosen) continue;
      context.strokeStyle = ink.text;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(left, top, radius + 4, 0, 2 * Math.PI);
      context.stroke();
      context.lineWidth = 1;
    }
  }

  #first(frame) {
    const { context, ink, box } = frame;
    const { points, first } = this.data;
    const point = points.find(({ at }) => at === first) ?? (this.data.byStep ? points.find(({ x }) => x === this.data.firstStep) : null);
    if (!point) return;
    const x = xAt(frame, frame.x, point.x);
    context.strokeStyle = context.fillStyle = ink.bad;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x, 18);
    context.lineTo(x, box.bottom);
    context.stroke();
    context.setLineDash([]);
    const text = cut(context, `first: ${this.data.firstName ?? nameOf(point.place)}`, frame.width - 16);
    const wide = context.measureText(text).width;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(text, Math.min(Math.max(x - wide / 2, 4), frame.width - wide - 4), 9);
  }

  #names({ context, ink, box }, names, equal) {
    const every = Math.ceil(names.length / Math.max(Math.floor(box.width / NAME_WIDTH), 1));
    const step = box.width / names.length;
    context.fillStyle = ink.soft;
    context.textAlign = "right";
    context.textBaseline = "middle";
    names.forEach((name, place) => {
      if (place % every) return;
      context.save();
      context.translate(box.left + (place + 0.5) * step, box.bottom + (equal ? GUTTER : 0) + 8);
      context.rotate(TILTED);
      context.fillText(name, 0, 0, 130);
      context.restore();
    });
  }

  #nearest(frame, x) {
    if (!frame.box) return null;
    const value = frame.x.back((x - frame.box.left) / frame.box.width);
    const { points } = this.data;
    let best = 0;
    for (let n = 1; n < points.length; n++) if (Math.abs(points[n].x - value) < Math.abs(points[best].x - value)) best = n;
    return this.#told(best);
  }

  #told(place) {
    const { points, byStep } = this.data;
    if (!points.length || !this.frame?.box) return null;
    this.place = Math.min(Math.max(place, 0), points.length - 1);
    const { x, place: one } = points[this.place];
    const added = Number.isFinite(one.added) ? `; adds ${told(one.added)} by itself` : "";
    const step = byStep ? `step ${whole(x)}, the worst place: ` : "";
    return {
      text: `${step}${nameOf(one)}: ${wordOf(one.verdict).word}, error ${told(one.error)}, tolerance ${told(one.tolerance)}${added}`,
      mark: (frame) => {
        const left = Math.round(xAt(frame, frame.x, x)) + 0.5;
        frame.context.strokeStyle = frame.ink.soft;
        frame.context.beginPath();
        frame.context.moveTo(left, frame.box.top);
        frame.context.lineTo(left, frame.box.bottom);
        frame.context.stroke();
      },
    };
  }
}

/** The points of some places: one for each, or the worst of each step. */
export function pointsOf(places, numbers, byStep) {
  const mine = numbers.map((at) => ({ place: places[at], at }));
  if (!byStep) return mine.map((one, x) => ({ ...one, x }));
  const steps = new Map();
  for (const one of mine) {
    if (!steps.has(one.place.step)) steps.set(one.place.step, []);
    steps.get(one.place.step).push(one);
  }
  return [...steps.entries()]
    .sort((a, b) => a[0] - b[0])
    .map(([x, some]) => {
      const worst = some.reduce((a, b) => (isWorse(b.place, a.place) ? b : a));
      return { ...worst, x, others: some.filter((one) => one !== worst).map(({ place }) => place) };
    });
}

/** Where nothing is tolerated, all that differs is infinitely beyond it: there the error itself tells. */
function isWorse(one, other) {
  const [a, b] = [badness(one), badness(other)];
  return a === b ? one.error > other.error : a > b;
}

/** All numbers that a logarithm can show, with room around them. */
function scaleOf(points) {
  const numbers = points.flatMap(({ place, others = [] }) => [place.error, place.tolerance, place.added, ...others.map(({ error }) => error)]).filter((value) => value > 0 && Number.isFinite(value));
  if (!numbers.length) return logarithmic(1e-8, 1);
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  return { ...logarithmic(low / 3, Math.max(high * 3, low * 30)), some: true };
}

function diamond(context, x, y, size, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.moveTo(x, y - size);
  context.lineTo(x + size, y);
  context.lineTo(x, y + size);
  context.lineTo(x - size, y);
  context.fill();
}

/** A text that is no wider than there is room; its end, which tells places apart, is kept. */
function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let kept = text.length;
  while (kept > 4 && context.measureText(`…${text.slice(-kept)}`).width > width) kept -= 2;
  return `…${text.slice(-kept)}`;
}
