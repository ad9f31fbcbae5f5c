import { useEffect, useState } from "preact/hooks";
import "./app.css";
import { Dot, Progress, StatePill, useLoaded } from "./parts";
import { source } from "./source";
import { change, choose, isDark, link, setTheme, toggle, useStore } from "./store";
import { BlindView } from "./views/blind";
import { CurvesView } from "./views/curves";
import { ListenView } from "./views/listen";
import { Overview } from "./views/overview";
import { PlayView } from "./views/play";
import { RunView } from "./views/run";
import { SettingsView } from "./views/settings";

const kViews: [string, string, boolean][] = [
  ["", "Runs", true],
  ["curves", "Curves", true],
  ["settings", "Settings", true],
  ["listen", "Listen", true],
  ["blind", "Blind test", false], // needs a server
  ["play", "Playground", false],
];

function RunList({ close }: { close: () => void }) {
  const { runs, chosen, hideOthers } = useStore();
  const list = [...runs.values()].filter((run) => `${run.name} ${run.task}`.toLowerCase().includes(hideOthers.toLowerCase()));
  const every = list.length > 0 && list.every((run) => chosen.includes(run.id));
  return (
    <>
      <div class="list-head">
        <input type="search" placeholder="filter runs" aria-label="filter runs" value={hideOthers} onInput={(e) => change({ hideOthers: e.currentTarget.value })} />
        <button type="button" class="quiet" onClick={() => choose(every ? [] : list.map((run) => run.id))}>{every ? "none" : "all"}</button>
      </div>
      <ul class="run-list">
        {list.map((run) => (
          <li key={run.id}>
            <label title={`show ${run.name} in curves, settings and samples`}>
              <input type="checkbox" checked={chosen.includes(run.id)} onChange={() => toggle(run.id)} aria-label={`choose ${run.name}`} />
              <Dot id={run.id} />
            </label>
            <a href={link("run", run.id)} onClick={close}>
              <span class="name">{run.name}</span>
              <span class="sub">{run.task} · {run.step.toLocaleString("en")}{run.steps_total > 0 && ` of ${run.steps_total.toLocaleString("en")}`}</span>
              {run.state === "running" && <Progress share={run.steps_total ? run.step / run.steps_total : 0} label={`steps of ${run.name}`} />}
            </a>
            <StatePill run={run} />
          </li>
        ))}
      </ul>
    </>
  );
}

export function App() {
  const { place, connected, loaded, theme, runs, chosen } = useStore();
  const [open, setOpen] = useState(false);
  const status = useLoaded("status", () => source.status()).value;
  const view = place[0] ?? "";
  useEffect(() => {
    const running = [...runs.values()].filter((run) => run.state === "running");
    const name = kViews.find(([key]) => key === view)?.[1] ?? place[1] ?? "";
    document.title = `${running.length === 1 && running[0].steps_total ? `${Math.floor((running[0].step / running[0].steps_total) * 100)} % · ` : ""}${name} · melete studio`;
  });
  useEffect(() => document.querySelector(".views [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [view, status]);
  const views = kViews.filter(([, , always]) => always || source.live).filter(([key]) => key !== "play" || status?.can_make);
  const themes = { auto: "light", light: "dark", dark: "auto" } as const;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>to the content</a>
      <header class="top">
        <button type="button" class="quiet menu" aria-expanded={open} aria-controls="runs" onClick={() => setOpen(!open)}>☰ <span class="unseen">runs</span><small>{chosen.length}</small></button>
        <a class="brand" href="#/"><svg viewBox="0 0 16 16" aria-hidden="true"><path d="M1 8h2.5L5 4l2.5 8L10 2.5 12 8h3" /></svg> melete <span>studio</span></a>
        <nav class="views" aria-label="views">
          {views.map(([key, name]) => (
            <a href={link(key)} aria-current={view === key || (key === "" && view === "run") ? "page" : undefined} key={key}>{name}</a>
          ))}
        </nav>
        <span class={`link-state ${connected ? "on" : "off"}`} role="status" title={status ? `${status.folder}, melete ${status.version}` : ""}>
          {source.live ? (connected ? "live" : loaded ? "no connection" : "connecting") : "report"}
        </span>
        <button type="button" class="quiet" onClick={() => setTheme(themes[theme])} aria-label={`colours: ${theme}; change`} title={`colours: ${theme}`}>
          {theme === "auto" ? "◐" : isDark() ? "☾" : "☼"}
        </button>
      </header>
      <div class="frame-of-page">
        <aside id="runs" class={open ? "open" : ""} aria-label="runs">
          <RunList close={() => setOpen(false)} />
        </aside>
        {open && <div class="shade" onClick={() => setOpen(false)} />}
        <main id="main" tabIndex={-1}>
          {view === "" && <Overview />}
          {view === "curves" && <CurvesView />}
          {view === "settings" && <SettingsView />}
          {view === "listen" && <ListenView />}
          {view === "blind" && source.live && <BlindView />}
          {view === "play" && source.live && <PlayView />}
          {view === "run" && <RunView id={place[1] ?? ""} key={place[1]} />}
        </main>
      </div>
    </>
  );
}
