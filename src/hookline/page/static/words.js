// words: how kinds, statistics, states and findings are called on the page.

export const KINDS = {
  output: "outputs",
  grad_output: "gradients of outputs",
  input: "inputs",
  grad_input: "gradients of inputs",
  param: "parameters",
  param_grad: "gradients of parameters",
  update: "updates of parameters",
};

export const STATS = {
  mean: "mean",
  std: "standard deviation",
  min: "smallest value",
  max: "largest value",
  absmax: "largest magnitude",
  l2: "L2 norm",
  near_zero: "share near zero (|x| ≤ 0.05)",
  zeros: "zeros (count)",
  nan: "NaN (count)",
  inf: "Inf (count)",
  count: "values (count)",
  ratio: "update relative to weight",
  lost: "share of updates lost to rounding",
};

export const LOGARITHMIC = new Set(["std", "l2", "absmax", "ratio"]);

// A sign as well as a colour: neither alone tells the whole.
export const HEALTH = {
  nan: { sign: "✖", word: "NaN", title: "NaN or Inf" },
  exploding: { sign: "▲", word: "exploding", title: "exploding" },
  dead: { sign: "■", word: "dead", title: "dead: outputs are zero" },
  vanishing: { sign: "▼", word: "vanishing", title: "vanishing gradient" },
  still: { sign: "‖", word: "not updating", title: "not updating" },
  healthy: { sign: "●", word: "healthy", title: "healthy" },
  unknown: { sign: "○", word: "not seen", title: "no rows" },
  pending: { sign: "…", word: "not known yet", title: "its health is not known yet" },
};

export const STATES = {
  running: "running",
  silent: "no end noted",
  ended: "ended",
  interrupted: "interrupted",
  failed: "ended by an exception",
};

/** The worst that is found of a site; "pending" where nothing has been looked at: that is not healthy. */
export function worst(health, site) {
  if (!health) return "pending";
  const findings = health[site];
  if (!findings) return "unknown";
  return findings.length ? findings[0][0] : "healthy";
}

/** Why a site is not healthy, in words. */
export function reasons(health, site) {
  return (health?.[site] ?? []).map(([, text]) => text).join("; ");
}

/** How a kind is called, also one that this page does not know; a run without rows has none. */
export function kindName(kind) {
  return KINDS[kind] ?? kind ?? "values";
}

export function statName(stat) {
  return STATS[stat] ?? stat ?? "numbers";
}
