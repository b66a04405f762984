// glob: hookline's patterns over dotted names, as src/hookline/globs.py has them; a test compares the two.

function escaped(letter) {
  return letter.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

/** The regular expression of a glob: `*` and `?` stay within one part of a name, `**` crosses dots. */
export function globPattern(pattern) {
  let out = "";
  let rest = pattern;
  let startsPart = true;
  while (rest) {
    const crosses = startsPart && rest.startsWith("**.");
    startsPart = crosses || rest[0] === ".";
    if (crosses) {
      out += "(?:.*\\.)?";
      rest = rest.slice(3);
    } else if (rest.startsWith("**")) {
      out += ".*";
      rest = rest.slice(2);
    } else if (rest[0] === "*") {
      out += "[^.]*";
      rest = rest.slice(1);
    } else if (rest[0] === "?") {
      out += "[^.]";
      rest = rest.slice(1);
    } else {
      const end = rest[0] === "[" ? rest.indexOf("]", rest[1] === "!" ? 3 : 2) : -1;
      if (end > 0) {
        out += `(?!\\.)${brackets(rest.slice(1, end))}`;
        rest = rest.slice(end + 1);
      } else {
        const letter = String.fromCodePoint(rest.codePointAt(0));
        out += escaped(letter);
        rest = rest.slice(letter.length);
      }
    }
  }
  return new RegExp(`^(?:${out})$`, "s");
}

function brackets(inside) {
  const negated = inside.startsWith("!");
  const letters = negated ? inside.slice(1) : inside;
  let out = "";
  for (let at = 0; at < letters.length; at++) {
    if (letters[at + 1] === "-" && at + 2 < letters.length) {
      if (letters[at] <= letters[at + 2]) out += `${escaped(letters[at])}-${escaped(letters[at + 2])}`;
      at += 2;
    } else {
      out += escaped(letters[at]);
    }
  }
  if (!out) return negated ? "." : "(?!)";
  return negated ? `[^${out}]` : `[${out}]`;
}

/** Whether a site is meant: by a glob, or, without `*`, `?` and `[`, by any part of its name. */
export function matcher(text) {
  const pattern = text.trim();
  if (!pattern) return () => true;
  if (!/[*?[]/.test(pattern)) {
    const part = pattern.toLowerCase();
    return (site) => siteText(site).includes(part);
  }
  const expression = globPattern(pattern);
  return (site) => expression.test(site) && (site !== "" || pattern === "**");
}

function siteText(site) {
  return (site || "(model)").toLowerCase();
}
