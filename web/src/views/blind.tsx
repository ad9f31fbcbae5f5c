// Tests without knowing what is heard. ABX: is X A or B? Scale: every version of an item gets 0 to 100, the original hidden
// among them. The order is drawn here; the answers are kept by the server, which says what follows from them.
import { useEffect, useRef, useState } from "preact/hooks";
import "./blind.css";
import { percent } from "../format";
import { isTaken } from "../keys";
import { Choice, Empty, useLoaded } from "../parts";
import { decode, lowPassed, measure, SyncPlayer } from "../player";
import { api, source } from "../source";
import { change, useStore } from "../store";
import type { BlindResult, BlindTest, Job } from "../types";
import { stepsOf, useSamples, versionAt } from "./listen";

interface Condition {
  name: string;
  url: (item: string) => string | undefined;
}

const kMostSteps = 6, kMostJobs = 4;

function draw(below: number): number {
  const number = new Uint32Array(1);
  crypto.getRandomValues(number);
  return number[0] % below;
}

function shuffled<T>(list: T[]): T[] {
  const out = [...list];
  for (let i = out.length - 1; i > 0; --i) {
    const j = draw(i + 1);
    [out[i], out[j]] = [out[j], out[i]];
  }
  return out;
}

// So many of a list, from its first to its last.
const spread = <T,>(list: T[], most: number) =>
  list.length <= most ? list : Array.from({ length: most }, (_, i) => list[Math.round((i * (list.length - 1)) / (most - 1))]);

// What the playground's codec made of a recording: every number of quantizers, Opus, and the original.
function addCodecJobs(jobs: Job[], items: Set<string>, add: (name: string, item: string, url: string) => void) {
  for (const job of jobs.filter((one) => one.tool === "codec" && one.state === "done").slice(0, kMostJobs)) {
    const file = (path: string) => path.split("/").pop()!;
    const item = `${file(String(job.settings.recording ?? job.id)).replace(/(-[0-9a-f]{8})?\.\w+$/, "")} (playground ${job.id.split("-").pop()})`;
    items.add(item);
    for (const path of job.results) {
      const coded = file(path).match(/^quantizers_0*(\d+)_at_([\d.]+)_kbps/), opus = file(path).match(/^opus_0*(\d+)_kbps/);
      if (coded) add(`${job.settings.from} · ${coded[1]} quantizer${coded[1] === "1" ? "" : "s"} · ${coded[2]} kbit/s`, item, source.url(path));
      else if (opus) add(`Opus ${opus[1]} kbit/s`, item, source.url(path));
      else if (file(path).startsWith("original")) add("original", item, source.url(path));
    }
  }
}

// Versions that can be heard: of every chosen run its samples at some steps, the original, the original through Opus and
// through a telephone's band (a low anchor, as MUSHRA has it), and what the playground's codec made.
function useConditions(): { items: string[]; conditions: Condition[] } {
  const { chosen, runs, jobs } = useStore();
  const { items } = useSamples(chosen.filter((id) => runs.has(id)));
  const sounds = items.filter((item) => item.kind === "audio");
  const originals = (name: string) => sounds.filter((item) => item.item === name).map((item) => versionAt(item, "original", Infinity)).find(Boolean);
  const conditions: Condition[] = [];
  for (const run of chosen) {
    const own = sounds.filter((item) => item.run === run);
    const steps = stepsOf(own);
    for (const step of spread(steps, kMostSteps))
      for (const label of ["ema", "online", "decoded", "made", "copy"])
        if (own.some((item) => item.versions.some((one) => one.label === label && one.step === step)))
          conditions.push({
            name: `${runs.get(run)?.name ?? run} · ${label} · step ${step}`,
            url: (name) => {
              const version = own.find((item) => item.item === name)?.versions.find((one) => one.label === label && one.step === step);
              return version && source.url(version.path);
            },
          });
  }
  const names = new Set(sounds.map((item) => item.item));
  const made = new Map<string, Map<string, string>>(); // by name and item
  addCodecJobs(jobs, names, (name, item, url) => made.set(name, (made.get(name) ?? new Map<string, string>()).set(item, url)));
  const original = (name: string) => (originals(name) ? source.url(originals(name)!.path) : made.get("original")?.get(name));
  if ([...names].some(original)) {
    conditions.push({ name: "original", url: original });
    conditions.push({ name: "anchor: the original below 3.5 kHz", url: (name) => original(name) && lowPassed(original(name)!) });
    for (const kbps of [6, 12, 24])
      conditions.push({
        name: `Opus ${kbps} kbit/s`,
        url: (name) => (originals(name) ? (source.opusUrl(originals(name)!.path, kbps) ?? undefined) : made.get(`Opus ${kbps} kbit/s`)?.get(name)),
      });
  }
  for (const [name, urls] of made) if (!conditions.some((one) => one.name === name)) conditions.push({ name, url: (item) => urls.get(item) });
  return { items: [...names].sort(), conditions };
}

// A player of the sounds of one trial; keys are letters that say nothing.
function usePlayer(sounds: [string, string][]) {
  const player = useRef<SyncPlayer | undefined>(undefined);
  player.current ??= new SyncPlayer();
  const [, again] = useState(0);
  const [ready, setReady] = useState(false);
  const key = sounds.map((sound) => sound.join()).join();
  useEffect(() => {
    let current = true;
    const rack = player.current!;
    rack.onChange = () => again((n) => n + 1);
    rack.matched = true; // what is louder would be told apart by that alone
    setReady(false);
    void Promise.all(sounds.map(async ([name, url]) => measure(name, await decode(url)))).then((tracks) => {
      if (!current) return;
      rack.setTracks(tracks);
      setReady(true);
    });
    return () => {
      current = false;
      rack.stop();
    };
  }, [key]);
  const hear = (name: string) => {
    player.current!.switchTo(name);
    if (!player.current!.playing) player.current!.play();
  };
  return { player: player.current, ready, hear };
}

interface AbxTrial {
  item: string;
  a: string;
  b: string;
  x: "a" | "b";
}

function Abx({ trials, conditions, done }: { trials: AbxTrial[]; conditions: Condition[]; done: (answers: ("a" | "b")[]) => void }) {
  const [answers, setAnswers] = useState<("a" | "b")[]>([]);
  const trial = trials[answers.length];
  const url = (name: string) => conditions.find((one) => one.name === name)!.url(trial.item)!;
  const { player, ready, hear } = usePlayer([["A", url(trial.a)], ["X", url(trial.x === "a" ? trial.a : trial.b)], ["B", url(trial.b)]]);
  const answer = (which: "a" | "b") => {
    const all = [...answers, which];
    if (all.length === trials.length) done(all);
    else setAnswers(all);
  };
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTaken(event) || !ready) return;
      const key = event.key.toLowerCase();
      if (["a", "x", "b"].includes(key)) hear(key.toUpperCase());
      else if (key === "1") answer("a");
      else if (key === "2") answer("b");
      else if (key === " ") player.toggle();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  return (
    <section class="card trial" aria-label={`trial ${answers.length + 1} of ${trials.length}`}>
      <p class="sub" aria-live="polite">trial {answers.length + 1} of {trials.length}</p>
      <div class="abx">
        {["A", "X", "B"].map((name) => (
          <button type="button" class={`big ${player.playing && player.active === name ? "on" : ""}`} disabled={!ready} onClick={() => hear(name)} aria-pressed={player.active === name} key={name}>
            {name}
          </button>
        ))}
      </div>
      <div class="abx answers">
        <button type="button" class="accent" disabled={!ready} onClick={() => answer("a")}>X is A <kbd>1</kbd></button>
        <button type="button" class="accent" disabled={!ready} onClick={() => answer("b")}>X is B <kbd>2</kbd></button>
      </div>
      <p class="hint">Switch as often as you like: <kbd>a</kbd> <kbd>x</kbd> <kbd>b</kbd>; levels are matched.</p>
    </section>
  );
}

interface ScaleTrial {
  item: string;
  order: string[]; // names of conditions
}

function Scale({ trials, conditions, done }: { trials: ScaleTrial[]; conditions: Condition[]; done: (ratings: Record<string, number>[]) => void }) {
  const [all, setAll] = useState<Record<string, number>[]>([]);
  const [ratings, setRatings] = useState<Record<string, number>>({});
  const trial = trials[all.length];
  const url = (name: string) => conditions.find((one) => one.name === name)!.url(trial.item)!;
  const reference = conditions.find((one) => one.name === "original")?.url(trial.item);
  const letters = trial.order.map((_, i) => String.fromCharCode(65 + i));
  const sounds: [string, string][] = letters.map((letter, i) => [letter, url(trial.order[i])]);
  if (reference) sounds.unshift(["reference", reference]);
  const { player, ready, hear } = usePlayer(sounds);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTaken(event) || !ready) return;
      const letter = event.key.toUpperCase();
      if (letters.includes(letter)) hear(letter);
      else if (letter === "R" && reference) hear("reference");
      else if (event.key === " ") player.toggle();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  const next = () => {
    const given = Object.fromEntries(trial.order.map((name, i) => [name, ratings[letters[i]] ?? 50]));
    const every = [...all, given];
    setRatings({});
    if (every.length === trials.length) done(every);
    else setAll(every);
  };
  return (
    <section class="card trial" aria-label={`item ${all.length + 1} of ${trials.length}`}>
      <p class="sub" aria-live="polite">item {all.length + 1} of {trials.length}: how good is each{reference ? ", beside the reference?" : "?"}</p>
      <div class="scale">
        {reference && (
          <div>
            <button type="button" class={`big ${player.active === "reference" ? "on" : ""}`} disabled={!ready} onClick={() => hear("reference")}>reference</button>
          </div>
        )}
        {letters.map((letter) => (
          <div key={letter}>
            <button type="button" class={`big ${player.active === letter ? "on" : ""}`} disabled={!ready} onClick={() => hear(letter)}>{letter}</button>
            <label>
              <input type="range" min="0" max="100" step="1" value={ratings[letter] ?? 50} aria-label={`rating of ${letter}`} onInput={(e) => setRatings({ ...ratings, [letter]: Number(e.currentTarget.value) })} />
              <output>{ratings[letter] ?? "–"}</output>
            </label>
          </div>
        ))}
      </div>
      <p class="hint">20 bad · 40 poor · 60 fair · 80 good · 100 excellent; a letter plays it, <kbd>r</kbd> the reference</p>
      <button type="button" class="accent" disabled={!ready || Object.keys(ratings).length < letters.length} onClick={next}>next</button>
    </section>
  );
}

// A mark with its interval on a line from 0 to 1.
function Interval({ low, mid, high, chance }: { low: number; mid: number; high: number; chance?: number }) {
  const at = (value: number) => 4 + Math.min(1, Math.max(0, value)) * 192;
  return (
    <svg class="interval" viewBox="0 0 200 18" role="img" aria-label={`${percent(mid)}, 95 % interval ${percent(low)} to ${percent(high)}`}>
      <line x1="4" x2="196" y1="9" y2="9" class="axis" />
      {chance !== undefined && <line x1={at(chance)} x2={at(chance)} y1="1" y2="17" class="chance" />}
      <line x1={at(low)} x2={at(high)} y1="9" y2="9" class="range" />
      <circle cx={at(mid)} cy="9" r="4" />
    </svg>
  );
}

export function Results({ result }: { result: BlindResult }) {
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label="results">
      {result.abx.length > 0 && (
        <table>
          <thead><tr><th scope="col">pair</th><th scope="col">told apart</th><th scope="col">95 % interval</th><th scope="col">by guessing</th></tr></thead>
          <tbody>
            {result.abx.map((one) => (
              <tr>
                <th scope="row">{one.a} <span class="sub">against</span> {one.b}</th>
                <td class="number">{one.hits} of {one.trials}</td>
                <td class="interval-cell"><Interval low={one.low} mid={one.share} high={one.high} chance={0.5} /> {percent(one.low)} – {percent(one.high)}</td>
                <td class="number">{percent(one.guessing)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {result.scale.length > 0 && (
        <table>
          <thead><tr><th scope="col">version</th><th scope="col">ratings</th><th scope="col">mean</th><th scope="col">95 % interval</th></tr></thead>
          <tbody>
            {[...result.scale].sort((a, b) => b.mean - a.mean).map((one) => (
              <tr>
                <th scope="row">{one.version}</th>
                <td class="number">{one.count}</td>
                <td class="number">{one.mean.toFixed(1)}</td>
                {one.count > 1 ? (
                  <td class="interval-cell"><Interval low={one.low / 100} mid={one.mean / 100} high={one.high / 100} /> {one.low.toFixed(1)} – {one.high.toFixed(1)}</td>
                ) : (
                  <td class="hint">one rating says nothing of others</td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}

type Going = { kind: "abx"; trials: AbxTrial[] } | { kind: "scale"; trials: ScaleTrial[] };

export function BlindView() {
  const { items, conditions } = useConditions();
  const [kind, setKind] = useState<"abx" | "scale">("abx");
  const [names, setNames] = useState<string[]>([]);
  const [count, setCount] = useState(8);
  const [listener, setListener] = useState("");
  const [going, setGoing] = useState<Going | null>(null);
  const [kept, setKept] = useState<BlindTest | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    if (source.live) void api.jobs().then((all) => change({ jobs: all }), () => undefined);
  }, []);
  const earlier = useLoaded(`blind${kept?.id ?? ""}`, () => api.blind());
  const chosen = conditions.filter((one) => names.includes(one.name));
  const usable = items.filter((item) => chosen.length > 0 && chosen.every((one) => one.url(item)));
  const toggle = (name: string) => setNames(names.includes(name) ? names.filter((one) => one !== name) : [...names, name]);
  const enough = kind === "abx" ? chosen.length === 2 : chosen.length >= 2;

  const start = () => {
    setKept(null);
    setError("");
    if (kind === "abx") {
      const trials = Array.from({ length: count }, (_, i) => {
        const [a, b] = shuffled(chosen);
        return { item: usable[(i + draw(usable.length)) % usable.length], a: a.name, b: b.name, x: (draw(2) ? "a" : "b") as "a" | "b" };
      });
      setGoing({ kind, trials });
    } else {
      setGoing({ kind, trials: shuffled(usable).slice(0, count).map((item) => ({ item, order: shuffled(chosen.map((one) => one.name)) })) });
    }
  };
  const finish = async (trials: unknown[]) => {
    setGoing(null);
    try {
      setKept(await api.addBlind({ kind: going!.kind, title: chosen.map((one) => one.name).join(" / ").slice(0, 190), listener, trials }));
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem));
    }
  };

  if (going?.kind === "abx") return <Abx key="abx" trials={going.trials} conditions={conditions} done={(answers) => void finish(going.trials.map((trial, i) => ({ ...trial, answer: answers[i] })))} />;
  if (going?.kind === "scale") return <Scale key="scale" trials={going.trials} conditions={conditions} done={(ratings) => void finish(going.trials.map((trial, i) => ({ item: trial.item, ratings: ratings[i] })))} />;
  return (
    <>
      {kept && (
        <section class="card" aria-label="your result" aria-live="polite">
          <h3>Your result</h3>
          <Results result={kept.result} />
        </section>
      )}
      {error && <p class="error" role="alert">{error}</p>}
      <section class="card" aria-label="a new test">
        <h3>A new test</h3>
        {conditions.length < 2 ? (
          <Empty>Choose runs with sound samples in the list, or code a recording in the playground: versions, the original and Opus can then be compared.</Empty>
        ) : (
          <>
            <div class="toolbar">
              <Choice label="kind of test" value={kind} set={setKind} options={[["abx", "ABX: two versions"], ["scale", "scale: two or more"]]} />
              <label>{kind === "abx" ? "trials" : "items"} <input type="number" min="1" max="100" value={count} onInput={(e) => setCount(Math.max(1, Math.min(100, Number(e.currentTarget.value) || 1)))} /></label>
              <label>listener <input type="text" maxLength={80} value={listener} placeholder="your name, or none" onInput={(e) => setListener(e.currentTarget.value)} /></label>
            </div>
            <fieldset class="conditions">
              <legend>{kind === "abx" ? "which two?" : "which versions? The original among them is the hidden reference."}</legend>
              {conditions.map((one) => (
                <label key={one.name}><input type="checkbox" checked={names.includes(one.name)} onChange={() => toggle(one.name)} /> {one.name}</label>
              ))}
            </fieldset>
            <button type="button" class="accent" disabled={!enough || usable.length === 0} onClick={start}>start</button>{" "}
            <span class="hint">{enough ? `${usable.length} items have all of them` : kind === "abx" ? "choose two" : "choose two or more"}</span>
          </>
        )}
      </section>
      {earlier.value && earlier.value.tests.length > 0 && (
        <section class="card" aria-label="all tests together">
          <h3>All {earlier.value.tests.length} tests together</h3>
          <Results result={earlier.value.together} />
          <ul class="log">
            {earlier.value.tests.slice(0, 20).map((test) => (
              <li>{test.kind === "abx" ? "ABX" : "scale"}, {test.trials.length} {test.kind === "abx" ? "trials" : "items"}{test.listener && `, ${test.listener}`}: {test.title} <time>{new Date(test.time * 1000).toLocaleString()}</time></li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}
