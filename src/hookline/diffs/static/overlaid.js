// overlaid: how the numbers of both values are spread, one over the other.

import { whole } from "./dom.js";
import { Chart, drawX, drawY, room, xAt, yAt } from "./plot.js";
import { linear } from "./scales.js";
import { told } from "./says.js";

export class Overlaid extends Chart {
  /** `histograms` as pictures.py writes them. */
  constructor(label, histograms) {
    super({
      height: 200,
      label,
      paint: (frame) => this.#paint(frame),
      probe: (frame, x) => this.#bin(Math.floor(frame.x.back((x - frame.box.left) / frame.box.width))),
      move: (frame, right, down) => this.#bin((this.at ?? -1) + right + down),
    });
    Object.assign(this, histograms);
    this.bins = histograms.counts[0].length;
    this.redraw();
  }

  #paint(frame) {
    const { context, ink } = frame;
    room(frame, { left: 66, bottom: 24 });
    frame.x = linear(0, this.bins);
    const y = linear(0, Math.max(...this.counts.flat(), 1) * 1.05);
    drawY(frame, y, "", (value) => (Number.isInteger(value) ? told(value, 3) : ""));
    this.counts.forEach((counts, second) => {
      context.fillStyle = context.strokeStyle = second ? ink.second : ink.accent;
      context.beginPath();
      context.moveTo(frame.box.left, frame.box.bottom);
      counts.forEach((count, bin) => {
        const top = yAt(frame, y, count);
        context.lineTo(xAt(frame, frame.x, bin), top);
        context.lineTo(xAt(frame, frame.x, bin + 1), top);
      });
      context.lineTo(frame.box.right, frame.box.bottom);
      context.globalAlpha = 0.22;
      context.fill();
      context.globalAlpha = 1;
      context.lineWidth = 1.5;
      context.setLineDash(second ? [5, 3] : []);
      context.stroke();
      context.setLineDash([]);
      context.lineWidth = 1;
    });
    const values = linear(this.low, this.high);
    drawX(frame, values, "", (value) => told(value, 3));
  }

  #bin(bin) {
    if (!this.frame?.box) return null;
    this.at = Math.min(Math.max(bin, 0), this.bins - 1);
    const width = (this.high - this.low) / this.bins;
    const [from, to] = [this.low + this.at * width, this.low + (this.at + 1) * width];
    const [low, high] = [this.at === 0 && this.beyond[0], this.at === this.bins - 1 && this.beyond[1]];
    const range = low ? `below ${told(to)}` : high ? `from ${told(from)} on` : `${told(from)} to ${told(to)}`;
    const [a, b] = this.counts.map((counts) => whole(counts[this.at]));
    return {
      text: `${range}: ${a} numbers of A, ${b} of B`,
      mark: (frame) => {
        const [left, right] = [this.at, this.at + 1].map((edge) => xAt(frame, frame.x, edge));
        frame.context.strokeStyle = frame.ink.soft;
        frame.context.strokeRect(left, frame.box.top, right - left, frame.box.height);
      },
    };
  }
}
