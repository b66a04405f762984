// lazy: work is done for what is on the screen, and done again when it has become stale.

const panels = new WeakMap();
const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) panels.get(entry.target)?.seen(entry.isIntersecting);
  },
  { rootMargin: "160px" },
);

export class Panel {
  visible = false;
  stale = true;
  busy = false;

  /** `load` fetches and draws; it runs when `element` is on the screen and something has changed. */
  constructor(element, load) {
    this.load = load;
    panels.set(element, this);
    observer.observe(element);
  }

  seen(visible) {
    this.visible = visible;
    this.work();
  }

  invalidate() {
    this.stale = true;
    this.work();
  }

  async work() {
    if (!this.visible || !this.stale || this.busy) return;
    this.stale = false;
    this.busy = true;
    try {
      await this.load();
    } finally {
      this.busy = false;
    }
    this.work();
  }
}
