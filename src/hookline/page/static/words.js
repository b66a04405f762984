// words: how kinds, statistics, numbers, states and findings are called on the page.

export const KINDS = {
  output: "outputs",
  grad_output: "gradients of outputs",
  input: "inputs",
  grad_input: "gradients of inputs",
  param: "parameters",
  param_grad: "gradients of parameters",
  update: "updates of parameters",
  moment: "moments of an optimizer",
  moment_sq: "moments of squares of an optimizer",
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

/** Numbers of the training that hookline notes by itself. */
export const SCALARS = {
  loss: "loss",
  lr: "learning rate",
  grad_norm: "gradient norm",
  grad_norm_clipped: "clipped gradient norm",
  weight_decay: "weight decay",
  loss_scale: "scale of the loss",
  backwards: "backward calls",
  accumulated: "backward calls added up",
  stale_grads: "gradients kept from before",
  batch_rms: "size of the inputs (RMS)",
  loaders_begun: "data loaders begun",
  share: "hookline's share of the time",
};

// A sign as well as a colour: neither alone tells the whole.
export const SEVERITIES = {
  error: { sign: "✖", title: "a defect" },
  warning: { sign: "▲", title: "very likely a defect" },
  note: { sign: "◆", title: "worth knowing" },
  healthy: { sign: "●", word: "healthy", title: "healthy" },
  unknown: { sign: "○", word: "not seen", title: "no rows" },
  pending: { sign: "…", word: "not known yet", title: "its health is not known yet" },
};
const RANKS = Object.keys(SEVERITIES);

/** Words for rules whose names are no words; a rule of a user's own is called by its name. */
const RULES = { nan: "NaN", nan_origin: "NaN", still: "not updating", lr: "learning rate" };

export const STATES = {
  running: "running",
  silent: "no end noted",
  ended: "ended",
  interrupted: "interrupted",
  failed: "ended by an exception",
};

/** The worst that is found of a site: a rule, or "healthy"; "pending" where nothing has been looked at. */
export function worst(health, site) {
  if (!health) return "pending";
  const findings = health[site];
  if (!findings) return "unknown";
  return findings.length ? findings[0][0] : "healthy";
}

/** How bad that is. */
export function severity(health, site) {
  const first = health?.[site]?.[0];
  return first ? first[3] : worst(health, site);
}

/** A place in the order of severities, the worst first; what is not known is no worse than what is healthy. */
export function rankOf(level) {
  return Math.min(RANKS.indexOf(level) < 0 ? RANKS.length : RANKS.indexOf(level), RANKS.indexOf("healthy"));
}

/** Whether a site has any finding. */
export function isSick(health, site) {
  return Boolean(health?.[site]?.length);
}

export function ruleWord(rule) {
  return SEVERITIES[rule]?.word ?? RULES[rule] ?? String(rule).replaceAll(/[_-]/g, " ");
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

/** How a number of the training is called: those of several groups have a number. */
export function scalarName(name) {
  const [first, group] = name.split("/");
  return group !== undefined && /^\d+$/.test(group) && SCALARS[first] ? `${SCALARS[first]} of group ${group}` : (SCALARS[name] ?? name);
}
