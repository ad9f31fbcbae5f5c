import { useEffect, useRef, useState } from "preact/hooks";
import "./curves.css";
import { seconds } from "../format";
import { HeatMap, type HeatRow } from "../heatmap";
import { Icon } from "../icons";
import { Choice, Empty, Toggle, useLoaded, useVisible } from "../parts";
import { type Corridor, corridorUntil, type Level, type Line, smoothed } from "../lines";
import { Plot } from "../plot";
import { source } from "../source";
import { colourOf, useStore } from "../store";
import type { Curves, Expected, Run, RunDetails } from "../types";

type Axis = "step" | "time";
interface Look {
  axis: Axis;
  smoothing: number;
  logX: boolean;
  logY: boolean;
  bands: boolean;
  expected: boolean;
  zoom: [number, number] | null;
}

// A plot shows one thing of all chosen runs: a loss of the training with its validations, or a series of its own.
interface Shown {
  key: string;
  group: string;
  title: string;
  series: string[];
}

const kGroups = ["Losses", "Gradients", "Learning rate", "Speed", "Health"];

function plots(names: Set<string>, main: Set<string>): Shown[] {
  const found = new Map<string, Shown>();
  const add = (key: string, group: string, title: string, series: string) => {
    const one = found.get(key) ?? { key, group, title, series: [] };
    one.series.push(series);
    found.set(key, one);
  };
  for (const name of names) {
    const parts = name.split("/");
    if (parts[0] === "loss") add(`loss/${parts.slice(1).join("/")}`, "Losses", parts.slice(1).join("/"), name);
    else if (parts[0] === "validation") {
      const loss = parts.slice(2).join("/");
      if (!/^(perplexity|code_use)_\d+$/.test(loss)) add(`loss/${loss}`, "Losses", loss, name);
    } else if (parts[0] === "gradient_norm") add(name, "Gradients", `gradient norm, ${parts[1]}`, name);
    else if (parts[0] === "gradient_z") add(name, "Gradients", `z-score of the norm, ${parts[1]}`, name);
    else if (parts[0] === "learning_rate") add(name, "Learning rate", parts[1], name);
    else if (parts[0] === "time") add(name, "Speed", parts[1].replaceAll("_", " "), name);
    else add(name, "Health", parts.slice(1).join(" ").replaceAll("_", " "), name);
  }
  // First what stands for the runs, then what training and validation both know, then the rest.
  const weight = (plot: Shown) => {
    const trained = plot.series.some((name) => !name.startsWith("validation/"));
    return main.has(plot.key) ? 0 : trained && plot.series.length > 1 ? 1 : trained ? 2 : 3;
  };
  return [...found.values()].sort(
    (a, b) => kGroups.indexOf(a.group) - kGroups.indexOf(b.group) || weight(a) - weight(b) || a.key.localeCompare(b.key),
  );
}

const xText = (axis: Axis) => (axis === "time" ? (x: number) => seconds(x) : undefined);

const kEma = [7, 4], kOnline = [2, 3]; // strokes of validations

function lineName(run: string, series: string, several: boolean) {
  const parts = series.split("/");
  const what = parts[0] === "validation" ? `validation ${parts[1]}` : "training";
  return { of: several ? run : "", what, name: several ? `${run}, ${what}` : what };
}

// What is asked for when nothing else is; asked again when there is something new, as soon as the answer before it is there.
function useCurves(shown: Shown, look: Look, wide: boolean, visible: boolean): Curves | null {
  const { runs, chosen } = useStore();
  const [curves, setCurves] = useState<Curves | null>(null);
  const asked = useRef(""), busy = useRef(false), load = useRef(() => {});
  // What was last told about these runs; a new step is a reason to ask again.
  const news = chosen.map((id) => `${id}:${runs.get(id)?.updated ?? 0}`).join();
  const want = JSON.stringify([shown.series, chosen, look.axis, look.zoom, wide, source.live ? news : ""]);
  load.current = () => {
    if (!visible || busy.current || asked.current === want) return;
    asked.current = want;
    busy.current = true;
    const margin = look.zoom ? (look.zoom[1] - look.zoom[0]) * 0.05 : 0;
    source
      .curves({
        runs: chosen,
        series: shown.series,
        axis: look.axis,
        points: wide ? 1600 : 700,
        ...(look.zoom && source.live ? { from: look.zoom[0] - margin, to: look.zoom[1] + margin } : {}),
      })
      .then(setCurves, () => setTimeout(() => ((asked.current = ""), load.current()), 1000)) // a server that was away comes back
      .finally(() => {
        busy.current = false;
        load.current();
      });
  };
  useEffect(() => load.current(), [want, visible]);
  return curves;
}

// What was expected of the runs in this plot. A table that several runs go by is drawn once, in nobody's colour.
function corridorsOf(shown: Shown, look: Look, expected: Map<string, Expected>, lines: Line[], runs: Map<string, Run>, several: boolean): Corridor[] {
  const found = new Map<string, Corridor>();
  if (!shown.key.startsWith("loss/") || !look.expected || lines.length === 0) return [];
  const dim = getComputedStyle(document.documentElement).getPropertyValue("--dim").trim();
  for (const [run, table] of expected)
    for (const side of ["training", "validation"] as const) {
      const curve = table[side]?.[shown.key.slice(5)];
      if (!curve) continue;
      const x = look.axis === "time" ? curve.seconds : curve.x, same = JSON.stringify([side, x, curve.low, curve.high]);
      const what = `expected${side === "validation" ? ` in validation${table.label ? ` ${table.label}` : ""}` : ""}`;
      const before = found.get(same);
      const until = Math.max(before?.until ?? 0, (look.axis === "time" ? runs.get(run)?.trained_seconds : runs.get(run)?.step) ?? 0);
      const of = several && !before ? (runs.get(run)?.name ?? run) : "";
      found.set(same, {
        ...corridorUntil(x, curve.low, curve.high, until * 1.08),
        until,
        of,
        what,
        name: of ? `${of}, ${what}` : what,
        colour: of ? colourOf(run) : dim,
        dash: side === "training" ? undefined : table.label === "ema" ? kEma : kOnline,
      });
    }
  return [...found.values()];
}

function PlotCard({ shown, look, setZoom, details, expected }: { shown: Shown; look: Look; setZoom: (zoom: Look["zoom"]) => void; details: RunDetails[]; expected: Map<string, Expected> }) {
  const { runs, chosen } = useStore();
  const { ref, visible } = useVisible<HTMLElement>();
  const [wide, setWide] = useState(false);
  const curves = useCurves(shown, look, wide, visible);

  const lines: Line[] = [];
  const several = chosen.length > 1;
  let lost = 0;
  for (const run of chosen)
    for (const series of shown.series) {
      const curve = curves?.[run]?.[series];
      if (!curve) continue;
      lost += curve.not_finite;
      const validation = series.startsWith("validation/");
      const smooth = !validation && look.smoothing > 0;
      lines.push({
        ...lineName(runs.get(run)?.name ?? run, series, several),
        colour: colourOf(run),
        x: curve.x,
        y: smooth ? smoothed(curve.y, look.smoothing) : curve.y,
        low: look.bands ? curve.low : undefined,
        high: look.bands ? curve.high : undefined,
        dash: validation ? (series.startsWith("validation/ema") ? kEma : kOnline) : undefined,
        points: validation,
        width: validation ? 1.25 : 1.75,
      });
    }
  const levels: Level[] = [];
  if (shown.key.startsWith("loss/"))
    for (const run of chosen) {
      const level = runs.get(run)?.chance_levels[shown.key.slice(5)], of = several ? runs.get(run)!.name : "";
      if (level !== undefined && level !== null && !levels.some((one) => one.value === level))
        levels.push({ of, what: "guessing", name: of ? `${of}, guessing` : "guessing", value: level, colour: colourOf(run) });
    }
  if (shown.key.startsWith("gradient_z/")) levels.push({ of: "", what: "3 deviations", name: "3 deviations", value: 3, colour: "#d0455a" });
  const ahead = useRatesAhead(shown, details, look);
  const corridors = corridorsOf(shown, look, expected, lines, runs, several);
  return (
    <section class={`card plot-card ${wide ? "wide" : ""}`} ref={ref} aria-label={shown.title} data-plot={shown.key}>
      <header>
        <h3>{shown.title}</h3>
        {lost > 0 && <span class="chip bad" title="values that were not finite have no place in a curve">{lost} not finite</span>}
        <button type="button" class="quiet" aria-pressed={wide} onClick={() => setWide(!wide)} aria-label={`${wide ? "smaller" : "larger"} plot of ${shown.title}`}>
          <Icon name={wide ? "smaller" : "larger"} />
        </button>
      </header>
      <Plot
        title={shown.title}
        lines={[...lines, ...ahead]}
        corridors={corridors}
        levels={levels}
        logX={look.logX}
        logY={look.logY && shown.group !== "Health" && !shown.key.startsWith("gradient_z/")}
        xLabel={look.axis === "time" ? "trained" : "step"}
        xText={xText(look.axis)}
        zoom={look.zoom}
        onZoom={setZoom}
        height={wide ? 440 : 230}
        note={curves ? "no values yet" : "loading…"}
      />
    </section>
  );
}

// The learning rate of the whole run, as its settings say, before it has come there.
function useRatesAhead(shown: Shown, details: RunDetails[], look: Look): Line[] {
  const wanted = shown.group === "Learning rate" && look.axis === "step";
  const key = wanted ? details.map((run) => `${run.id}:${run.steps_total}`).join() : "";
  const loaded = useLoaded(key, async () => (wanted ? Promise.all(details.map((run) => source.rates(run.id))) : []));
  if (!wanted || !loaded.value) return [];
  const phase = shown.key.slice("learning_rate/".length);
  return loaded.value.flatMap((rates, i) => {
    // A task of one phase has its settings at the top.
    const rate = rates[phase] ?? (Object.keys(rates).length === 1 ? Object.values(rates)[0] : undefined);
    if (!rate || !details[i]) return [];
    const of = details.length > 1 ? details[i].name : "";
    return [{ of, what: "ahead", name: of ? `${of}, ahead` : "ahead", colour: colourOf(details[i].id), x: rate.x, y: rate.y, dash: [3, 4], width: 1.25 }];
  });
}

function CodebookUse({ details, kind }: { details: RunDetails; kind: "code_use" | "perplexity" }) {
  const names = details.series.filter((name) => new RegExp(`^validation/online/${kind}_\\d+$`).test(name));
  const loaded = useLoaded<Curves>(`${details.id}:${details.updated}:${names.length}`, async () =>
    names.length > 0 ? source.curves({ runs: [details.id], series: names, axis: "step", points: 400 }) : {},
  );
  if (names.length === 0 || !loaded.value?.[details.id]) return null;
  const number = (name: string) => Number(name.slice(name.lastIndexOf("_") + 1));
  const rows: HeatRow[] = names
    .sort((a, b) => number(a) - number(b))
    .filter((name) => loaded.value![details.id][name])
    .map((name) => ({ name: `quantizer ${number(name)}`, ...loaded.value![details.id][name] }));
  const high = kind === "code_use" ? 1 : Math.max(1, ...rows.flatMap((row) => row.y));
  return (
    <section class="card plot-card" aria-label={`${kind === "code_use" ? "codes in use" : "perplexity"} of ${details.name}`}>
      <header>
        <h3>
          {kind === "code_use" ? "share of codes in use" : "perplexity of the codes"}, {details.name}
        </h3>
      </header>
      <HeatMap rows={rows} low={0} high={high} label={kind === "code_use" ? "share of codes in use" : "perplexity"} />
    </section>
  );
}

export function CurvesView() {
  const { chosen, runs } = useStore();
  const [look, setLook] = useState<Look>({ axis: "step", smoothing: 0, logX: false, logY: false, bands: true, expected: true, zoom: null });
  const [filter, setFilter] = useState("");
  const known = chosen.filter((id) => runs.has(id));
  const loaded = useLoaded(
    known.map((id) => `${id}:${Object.keys(runs.get(id)!.losses).length}:${Math.floor((runs.get(id)!.step ?? 0) / 20)}`).join(),
    () => Promise.all(known.map((id) => source.run(id))),
  );
  const details = (loaded.value ?? []).filter((run) => known.includes(run.id));
  // Where a run will be when changes while it goes on; what is expected of it does not.
  const tables = useLoaded(known.map((id) => `${id}:${look.axis === "time" ? runs.get(id)!.step : ""}`).join(), async () => new Map(await Promise.all(known.map(async (id): Promise<[string, Expected]> => [id, await source.expected(id)]))));
  const expected = new Map([...(tables.value ?? [])].filter(([id, table]) => known.includes(id) && (table.training || table.validation)));
  const names = new Set(details.flatMap((run) => run.series));
  const shown = plots(names, new Set(details.map((run) => `loss/${run.main_loss}`))).filter((plot) => `${plot.group} ${plot.title}`.toLowerCase().includes(filter.toLowerCase()));
  const set = (part: Partial<Look>) => setLook((before) => ({ ...before, ...part }));
  if (known.length === 0) return <Empty>Choose one or more runs in the list to see their curves.</Empty>;
  return (
    <>
      <div class="toolbar" role="toolbar" aria-label="how curves are shown">
        <Choice<Axis> label="horizontal axis" value={look.axis} set={(axis) => set({ axis, zoom: null })} options={[["step", "steps"], ["time", "time trained"]]} />
        <label class="slider">
          smoothing
          <input type="range" min="0" max="0.99" step="0.01" value={look.smoothing} onInput={(e) => set({ smoothing: Number(e.currentTarget.value) })} />
          <output>{look.smoothing.toFixed(2)}</output>
        </label>
        <Toggle on={look.logY} set={(logY) => set({ logY })}>log y</Toggle>
        <Toggle on={look.logX} set={(logX) => set({ logX })}>log x</Toggle>
        <Toggle on={look.bands} set={(bands) => set({ bands })} title="from the lowest to the highest value of the steps that a point stands for">range</Toggle>
        {expected.size > 0 && <Toggle on={look.expected} set={(on) => set({ expected: on })} title={[...expected.values()].map((table) => `what the recipe gave on ${table.data || "the data that it was measured with"}${table.machine ? `, ${table.machine}` : ""}`)[0]}>expected</Toggle>}
        <input type="search" placeholder="filter plots" aria-label="filter plots" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        {look.zoom && (
          <button type="button" class="accent" onClick={() => set({ zoom: null })}>
            show all
          </button>
        )}
        <span class="hint">drag to zoom, double-click to see all; in a plot <kbd>←</kbd><kbd>→</kbd> values <kbd>+</kbd><kbd>−</kbd><kbd>0</kbd> zoom</span>
      </div>
      {kGroups.map((group) => {
        const list = shown.filter((plot) => plot.group === group);
        if (list.length === 0) return null;
        return (
          <section aria-label={group} key={group}>
            <h2 class="group">{group}</h2>
            <div class="plots">
              {list.map((plot) => (
                <PlotCard key={plot.key} shown={plot} look={look} setZoom={(zoom) => set({ zoom })} details={details} expected={expected} />
              ))}
              {group === "Losses" && !filter && details.map((run) => [<CodebookUse key={`u${run.id}`} details={run} kind="code_use" />, <CodebookUse key={`p${run.id}`} details={run} kind="perplexity" />])}
            </div>
          </section>
        );
      })}
      {loaded.error && <Empty>{loaded.error}</Empty>}
    </>
  );
}
