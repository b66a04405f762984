// packed: what Python wrote into a page: base64, of bytes or of JSON that was compressed.

export function bytesOf(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

export async function unpacked(text) {
  const packed = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(packed).json();
}
