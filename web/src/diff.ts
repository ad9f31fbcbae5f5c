// Words that two texts have in common, and those that only one has: by their longest common sequence.

export interface Piece {
  text: string;
  kind: "same" | "added" | "gone";
}

const kMostWords = 1500;

export function wordDiff(before: string, after: string): Piece[] {
  const a = before.split(/(\s+)/).slice(0, kMostWords), b = after.split(/(\s+)/).slice(0, kMostWords);
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; --i)
    for (let j = b.length - 1; j >= 0; --j)
      length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const out: Piece[] = [];
  const push = (text: string, kind: Piece["kind"]) => {
    const last = out[out.length - 1];
    if (last?.kind === kind) last.text += text;
    else out.push({ text, kind });
  };
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      push(a[i++], "same");
      ++j;
    } else if (j < b.length && (i === a.length || length[i][j + 1] >= length[i + 1][j])) push(b[j++], "added");
    else push(a[i++], "gone");
  }
  return joined(out);
}

// Changed words next to each other are one change, with the spaces between them: what is gone, then what is new.
function joined(pieces: Piece[]): Piece[] {
  const out: Piece[] = [];
  for (let at = 0; at < pieces.length; ) {
    if (pieces[at].kind === "same") {
      out.push(pieces[at++]);
      continue;
    }
    const text = { added: "", gone: "" };
    let end = at;
    for (; end < pieces.length; ++end) {
      const { kind, text: words } = pieces[end];
      if (kind !== "same") text[kind] += words;
      else if (words.trim() === "" && end + 1 < pieces.length) {
        text.added += words;
        text.gone += words;
      } else break;
    }
    const tail = text.added.match(/\s*$/)![0];
    const both = tail && text.gone.endsWith(tail) ? tail.length : 0; // spaces that both end with did not change
    for (const kind of ["gone", "added"] as const) {
      const words = text[kind].slice(0, text[kind].length - both);
      if (words.trim()) out.push({ text: words, kind });
    }
    if (both) out.push({ text: tail, kind: "same" });
    at = end;
  }
  return out;
}
