// names: many names where there is little room.

/** Names without what all of them begin or end with, so that the part that differs is seen. */
export function shortened(names) {
  let parts = names.map((name) => name.split("."));
  const cut = (side, slice) => {
    while (parts.length > 1 && parts.every((part) => part.length > 1 && part.at(side) === parts[0].at(side))) {
      parts = parts.map(slice);
    }
  };
  cut(0, (part) => part.slice(1));
  cut(-1, (part) => part.slice(0, -1));
  return parts.map((part) => part.join(".")).map((name) => (name.length > 22 ? `…${name.slice(-21)}` : name));
}
