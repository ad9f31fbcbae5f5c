import { useEffect, useState } from "preact/hooks";
import "./listen.css";
import { Choice, Empty, Toggle, useLoaded } from "../parts";
import { source, textOf } from "../source";
import { colourOf, useStore } from "../store";
import type { SampleItem, SampleVersion } from "../types";
import { type Piece, wordDiff } from "../diff";
import { PictureItem } from "./pictures";
import { Rack, type Sound } from "./rack";

interface Found extends SampleItem {
  run: string;
}

const kOpus = [6, 12, 24], kMostTexts = 60;
const kOrder = ["original", "copy", "online", "ema", "decoded", "made"];

export function useSamples(ids: string[]): { items: Found[]; loaded: boolean } {
  const { runs } = useStore();
  const key = ids.map((id) => `${id}:${runs.get(id)?.newest_sample}:${runs.get(id)?.state}`).join("\n");
  const loaded = useLoaded(key, async () => {
    const lists = await Promise.all(ids.map((id) => source.samples(id)));
    return lists.flatMap((list, i) => list.map((item) => ({ ...item, run: ids[i] })));
  });
  return { items: loaded.value ?? [], loaded: loaded.value !== null };
}

export const stepsOf = (items: SampleItem[]) => [...new Set(items.flatMap((item) => item.versions.map((one) => one.step)))].sort((a, b) => a - b);

// The newest version of a label that is not after a step.
export function versionAt(item: SampleItem, label: string, step: number): SampleVersion | undefined {
  return item.versions.filter((one) => one.label === label && one.step <= step).sort((a, b) => b.step - a.step)[0];
}

function AudioItem({ items, name }: { items: Found[]; name: string }) {
  const { runs } = useStore();
  const steps = stepsOf(items);
  const labels = [...new Set(items.flatMap((item) => item.versions.map((one) => one.label)))]
    .filter((label) => label !== "original" && label !== "copy")
    .sort((a, b) => kOrder.indexOf(a) - kOrder.indexOf(b));
  const [by, setBy] = useState<"versions" | "steps">("versions");
  const [chosenStep, setStep] = useState<number | null>(null);
  const [chosenLabel, setLabel] = useState("");
  const [opus, setOpus] = useState(false);
  const step = chosenStep ?? steps[steps.length - 1];
  const label = labels.includes(chosenLabel) ? chosenLabel : (labels.includes("ema") ? "ema" : labels[0]);
  const several = items.length > 1;
  const sounds: Sound[] = [];
  const add = (item: Found, version: SampleVersion | undefined, text: string) => {
    if (!version || sounds.some((sound) => sound.key === version.path)) return;
    const name_ = several ? `${runs.get(item.run)?.name ?? item.run} · ${text}` : text;
    sounds.push({ key: version.path, name: name_, url: source.url(version.path), colour: colourOf(item.run) });
  };
  const original = items.map((item) => versionAt(item, "original", Infinity) ?? versionAt(item, "copy", Infinity)).find(Boolean);
  if (original) sounds.push({ key: original.path, name: "original", url: source.url(original.path), colour: "var(--dim)" });
  if (by === "versions") {
    for (const item of items) for (const one of labels) add(item, versionAt(item, one, step), `${one}, step ${versionAt(item, one, step)?.step.toLocaleString("en")}`);
  } else {
    for (const item of items) {
      const all = item.versions.filter((one) => one.label === label);
      const most = Math.max(2, Math.floor(8 / items.length));
      const shown = all.length <= most ? all : Array.from({ length: most }, (_, i) => all[Math.round((i * (all.length - 1)) / (most - 1))]);
      for (const version of shown) add(item, version, `${label}, step ${version.step.toLocaleString("en")}`);
    }
  }
  if (opus && original)
    for (const kbps of kOpus) {
      const url = source.opusUrl(original.path, kbps);
      if (url) sounds.push({ key: `opus-${kbps}`, name: `Opus, ${kbps} kbit/s`, url, colour: "var(--dim)" });
    }
  return (
    <>
      <div class="toolbar" role="toolbar" aria-label="what is compared">
        <Choice label="compare" value={by} set={setBy} options={[["versions", "versions at a step"], ["steps", "one version over steps"]]} />
        {by === "versions" && steps.length > 1 && (
          <label class="slider">
            step
            <input type="range" min="0" max={steps.length - 1} step="1" value={steps.indexOf(step)} onInput={(e) => setStep(steps[Number(e.currentTarget.value)])} />
            <output>{step.toLocaleString("en")}</output>
          </label>
        )}
        {by === "steps" && labels.length > 1 && <Choice label="version" value={label} set={setLabel} options={labels.map((one) => [one, one])} />}
        {original && source.live && <Toggle on={opus} set={setOpus} title="the original through Opus at 6, 12 and 24 kbit/s">beside Opus</Toggle>}
      </div>
      <Rack sounds={sounds} title={name} />
    </>
  );
}

// Lines of a sample that say what should have come out and what did: written and read, spoken and made tokens.
const kTruths: Record<string, string> = { read: "written", tokens: "spoken" };

function lineOf(text: string, name: string): string | undefined {
  return text.split("\n").find((line) => line.startsWith(`${name}:`))?.slice(name.length + 1).trim();
}

const hasTruth = (text: string) => Object.entries(kTruths).some(([made, truth]) => lineOf(text, made) !== undefined && lineOf(text, truth) !== undefined);

// A text with its made lines marked against what they should be.
function besideTruth(text: string): Piece[] {
  return text.split("\n").flatMap((line): Piece[] => {
    const made = line.slice(0, line.indexOf(":")), truth = kTruths[made] && lineOf(text, kTruths[made]);
    if (truth === undefined) return [{ text: `${line}\n`, kind: "same" }];
    const words = line.slice(made.length + 1).trim();
    return [{ text: `${made}: `, kind: "same" }, ...wordDiff(truth, words), { text: "\n", kind: "same" }];
  });
}

// What changed since the same run and version said it before, how far each is from what it should say, or from another of
// the same step.
function TextItem({ items }: { items: Found[] }) {
  const { runs } = useStore();
  const versions = items.flatMap((item) => item.versions.map((version) => ({ ...version, run: item.run })));
  const shown = versions.slice(-kMostTexts);
  const [chosen, setAgainst] = useState("");
  const loaded = useLoaded(versions.map((one) => one.path).join("\n"), () => Promise.all(shown.map((one) => textOf(source.url(one.path)))));
  if (!loaded.value) return <Empty>{loaded.error || "loading…"}</Empty>;
  const name = (one: (typeof shown)[0]) => `${items.length > 1 ? `${runs.get(one.run)?.name ?? one.run} · ` : ""}${one.label}`;
  const others = [...new Set(shown.map(name))];
  const truths = loaded.value.some((text) => hasTruth(text ?? ""));
  const against = chosen || (truths ? "truth" : "before");
  const comparedWith = (index: number): number => {
    const one = shown[index];
    const last = (fits: (other: (typeof shown)[0], j: number) => boolean) => shown.reduce((found, other, j) => (fits(other, j) ? j : found), -1);
    if (against === "before") return last((other, j) => j < index && name(other) === name(one));
    const same = last((other) => name(other) === against && other.step === one.step);
    return same >= 0 ? same : last((other) => name(other) === against);
  };
  return (
    <>
      {(others.length > 1 || truths) && (
        <div class="toolbar">
          <label>
            differences from{" "}
            <select value={against} onChange={(event) => setAgainst(event.currentTarget.value)}>
              {truths && <option value="truth">what it should be</option>}
              <option value="before">the step before</option>
              {others.map((one) => <option value={one} key={one}>{one}, same step</option>)}
            </select>
          </label>
          <span class="hint"><ins>new</ins> <del>gone</del></span>
        </div>
      )}
      <ol class="texts">
        {shown.map((one, i) => {
          const text = loaded.value![i] ?? "", other = comparedWith(i);
          const pieces = against === "truth" ? besideTruth(text) : wordDiff(other >= 0 ? (loaded.value![other] ?? "") : text, text);
          return (
            <li key={one.path}>
              <b>{name(one)}, step {one.step.toLocaleString("en")}</b>
              <pre>
                {pieces.map((piece) => (piece.kind === "added" ? <ins>{piece.text}</ins> : piece.kind === "gone" ? <del>{piece.text}</del> : piece.text))}
              </pre>
            </li>
          );
        })}
      </ol>
    </>
  );
}

export function ListenView() {
  const { chosen, runs, place } = useStore();
  const known = chosen.filter((id) => runs.has(id));
  const { items, loaded } = useSamples(known);
  const names = [...new Map(items.map((item) => [`${item.kind}/${item.item}`, item])).entries()].sort(
    (a, b) => ["audio", "picture", "text"].indexOf(a[1].kind) - ["audio", "picture", "text"].indexOf(b[1].kind) || a[0].localeCompare(b[0], "en", { numeric: true }),
  );
  const wanted = place[1] && place[2] ? `${place[1]}/${place[2]}` : "";
  const key = names.some(([name]) => name === wanted) ? wanted : names[0]?.[0];
  const same = items.filter((item) => `${item.kind}/${item.item}` === key);
  useEffect(() => document.querySelector(".items [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [key]);
  if (known.length === 0) return <Empty>Choose one or more runs in the list to hear and see what they made.</Empty>;
  if (!loaded) return <Empty>Looking for samples…</Empty>;
  if (!key) return <Empty>No samples yet: they are written every <code>train.sample_every</code> steps.</Empty>;
  return (
    <div class="listen">
      <nav class="items" aria-label="items">
        {names.map(([name, item]) => (
          <a href={`#/listen/${item.kind}/${encodeURIComponent(item.item)}`} aria-current={name === key ? "true" : undefined} key={name}>
            <span aria-hidden="true">{item.kind === "audio" ? "♪" : item.kind === "picture" ? "▦" : "¶"}</span> {item.item}
            <span class="unseen"> ({item.kind})</span>
          </a>
        ))}
      </nav>
      <section class="card" aria-label={same[0]?.item} key={key}>
        <h3>{same[0]?.item}</h3>
        {same[0]?.kind === "audio" && <AudioItem items={same} name={same[0].item} />}
        {same[0]?.kind === "picture" && <PictureItem items={same} />}
        {same[0]?.kind === "text" && <TextItem items={same} />}
      </section>
    </div>
  );
}
