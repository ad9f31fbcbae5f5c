// A form for everything that can be generated, made from the tables that the command line has; a queue, and what came of it.
import { useEffect, useRef, useState } from "preact/hooks";
import "./play.css";
import { bytes, seconds } from "../format";
import { Copy, Empty, Progress, useLoaded } from "../parts";
import { audioContext, waveFile } from "../player";
import { api, source, textOf } from "../source";
import { change, useStore } from "../store";
import type { Job, ModelFile, Tool, ToolOption } from "../types";
import { Rack } from "./rack";

type Values = Record<string, string>;

// What is asked for first; the rest is behind "more settings".
const first = (option: ToolOption) => option.kind === "run" || /^(text|recording|prompt|voice|voice_text|seconds|guidance|steps|seed|like|image|story)$/.test(option.name);

// What there must be a run of before a tool can do anything: of what it starts from, or of its first part.
function mainTasks(tool: Tool): string[] {
  const from = tool.options.find((option) => option.name === "from");
  return from?.tasks ?? tool.options.find((option) => option.kind === "run" && option.tasks)?.tasks ?? [];
}

const fits = (option: ToolOption, task: string) => !option.tasks || option.tasks.includes(task);

// Runs, which stand for their newest checkpoint; files of their own, such as a tokenizer's; and older checkpoints.
function RunField({ option, files, value, set }: { option: ToolOption; files: ModelFile[]; value: string; set: (value: string) => void }) {
  const { runs } = useStore();
  const folder = option.help.startsWith("folder");
  const newest = folder ? [] : [...runs.values()].filter((run) => fits(option, run.task));
  const own = folder ? [] : files.filter((file) => !file.run && fits(option, file.task));
  const older = folder ? [] : files.filter((file) => file.run && fits(option, file.task) && newest.some((run) => run.id === file.run));
  const none = newest.length + own.length === 0 && option.tasks;
  const task = (name: string) => (option.tasks?.length === 1 ? "" : ` (${name})`);
  return (
    <select value={value} onChange={(e) => set(e.currentTarget.value)} id={`o-${option.name}`}>
      <option value="">{none ? `none of ${option.tasks!.join(" or ")} here` : "–"}</option>
      {folder && <option value=".">the whole folder</option>}
      {newest.map((run) => <option value={run.id} key={run.id}>{run.name}{task(run.task)}, step {run.step.toLocaleString("en")}</option>)}
      {own.length > 0 && (
        <optgroup label="files">
          {own.map((file) => <option value={file.path} key={file.path}>{file.path}{task(file.task)}</option>)}
        </optgroup>
      )}
      {older.length > 0 && (
        <optgroup label="single checkpoints">
          {older.map((file) => <option value={file.path} key={file.path}>{runs.get(file.run)!.name}, step {file.step.toLocaleString("en")}</option>)}
        </optgroup>
      )}
    </select>
  );
}

// What the process of the jobs has in memory, so that the next job of that kind begins at once.
function Kept({ jobs }: { jobs: Job[] }) {
  const over = jobs.filter((job) => job.ended > 0).length;
  const [asked, again] = useState(0);
  const kept = useLoaded(`${over}:${asked}`, () => api.kept()).value ?? [];
  if (kept.length === 0) return null;
  const forget = async () => {
    await api.forgetKept();
    setTimeout(() => again((n) => n + 1), 400); // its process ends first
  };
  return (
    <p class="hint kept">
      in memory: {kept.map((model) => `${model.kind} ${bytes(model.bytes)}`).join(", ")}{" "}
      <button type="button" class="quiet" onClick={() => void forget()}>free it</button>
    </p>
  );
}

function FileField({ option, value, set }: { option: ToolOption; value: string; set: (value: string) => void }) {
  const [note, setNote] = useState("");
  const [over, setOver] = useState(false);
  const [recording, setRecording] = useState<{ stop: () => void } | null>(null);
  const accept = option.kind === "recording" ? "audio/*,.flac,.ogg,.opus" : option.kind === "picture" ? "image/*" : ".txt";
  const send = async (name: string, bytes: Blob) => {
    setNote("sending…");
    try {
      set((await api.upload(name, bytes)).path);
      setNote("");
    } catch (error) {
      setNote(error instanceof Error ? error.message : String(error));
    }
  };
  const record = async () => {
    if (recording) return recording.stop();
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const recorder = new MediaRecorder(stream), pieces: Blob[] = [];
      recorder.ondataavailable = (event) => pieces.push(event.data);
      recorder.onstop = async () => {
        stream.getTracks().forEach((track) => track.stop());
        setRecording(null);
        const sound = await audioContext().decodeAudioData(await new Blob(pieces).arrayBuffer());
        await send("microphone.wav", waveFile(sound.getChannelData(0), sound.sampleRate));
      };
      recorder.start();
      setRecording({ stop: () => recorder.stop() });
    } catch (error) {
      setNote(`no microphone: ${error instanceof Error ? error.message : error}`);
    }
  };
  return (
    <span
      class={`file-field ${over ? "over" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        const file = event.dataTransfer?.files[0];
        if (file) void send(file.name, file);
      }}
    >
      {option.names && option.names.length > 0 && (
        <select aria-label={`${option.name} by its name`} value={option.names.includes(value) ? value : ""} onChange={(e) => set(e.currentTarget.value)}>
          <option value="">a recording:</option>
          {option.names.map((name) => <option key={name}>{name}</option>)}
        </select>
      )}
      <input type="file" id={`o-${option.name}`} accept={accept} onChange={(e) => e.currentTarget.files?.[0] && void send(e.currentTarget.files[0].name, e.currentTarget.files[0])} />
      {option.kind === "recording" && <button type="button" class={recording ? "accent" : ""} onClick={() => void record()}>{recording ? "■ stop" : "● microphone"}</button>}
      {!value && !note && <span class="hint">or drop it here</span>}
      {value && <span class="chip good">{value.split("/").pop()} <button type="button" class="quiet" aria-label="remove" onClick={() => set("")}>×</button></span>}
      {note && <span class="hint">{note}</span>}
    </span>
  );
}

function Field({ option, files, value, set }: { option: ToolOption; files: ModelFile[]; value: string; set: (value: string) => void }) {
  const id = `o-${option.name}`;
  const shown = option.default === null || option.default === "" ? "" : Array.isArray(option.default) ? option.default.join(",") : String(option.default);
  let input;
  if (option.kind === "run") input = <RunField option={option} files={files} value={value} set={set} />;
  else if (option.kind === "recording" || option.kind === "picture" || option.kind === "file") input = <FileField option={option} value={value} set={set} />;
  else if (option.kind === "choice")
    input = <select id={id} value={value || shown} onChange={(e) => set(e.currentTarget.value)}>{option.choices!.map((one) => <option>{one}</option>)}</select>;
  else if (option.kind === "flag" || option.kind === "output") input = <input type="checkbox" id={id} checked={(value || shown) === "true"} onChange={(e) => set(String(e.currentTarget.checked))} />;
  else if (option.name === "text" || option.name === "story") input = <textarea id={id} rows={3} value={value} onInput={(e) => set(e.currentTarget.value)} />;
  else if (option.kind === "number") input = <input type="number" step="any" id={id} value={value} placeholder={shown} onInput={(e) => set(e.currentTarget.value)} />;
  else input = <input type="text" id={id} value={value} placeholder={shown} onInput={(e) => set(e.currentTarget.value)} />;
  return (
    <div class={`field of-${option.kind}`}>
      <label for={id}>{option.name.replaceAll("_", " ")}{option.unit && <small> {option.unit}</small>}</label>
      {input}
      <p class="help">{option.help}{option.limits && !option.choices && ` (${option.limits})`}</p>
    </div>
  );
}

function Result({ path }: { path: string }) {
  const text = useLoaded(path, async () => (path.endsWith(".txt") ? textOf(source.url(path)) : ""));
  if (/\.(png|jpe?g|webp)$/.test(path)) return <img class="made" src={source.url(path)} alt={path.split("/").pop()} />;
  if (path.endsWith(".txt")) return <pre>{text.value}</pre>;
  return <a href={source.url(path)} download>{path.split("/").pop()}</a>;
}

function JobCard({ job, open }: { job: Job; open: boolean }) {
  const [shown, setShown] = useState(open);
  const name = (path: string) => path.split("/").pop()!.replace(/\.\w+$/, "").replaceAll("_", " ");
  const rank = (path: string) => ["original", "quantizers"].findIndex((word) => name(path).startsWith(word)) & 3;
  const sounds = job.results.filter((path) => /\.(wav|flac|ogg|opus)$/.test(path)).sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }));
  const others = job.results.filter((path) => !sounds.includes(path));
  const alive = job.state === "waiting" || job.state === "running";
  const took = job.ended && job.started ? seconds(job.ended - job.started) : "";
  const label = String(job.settings.text ?? job.settings.story ?? job.settings.from ?? "");
  return (
    <article class="card job" data-job={job.id} aria-label={`${job.tool}, ${job.state}`}>
      <header>
        <h3><button type="button" class="quiet" aria-expanded={shown} aria-label={`${shown ? "hide" : "show"} what ${job.tool} made`} onClick={() => setShown(!shown)}>{shown ? "▾" : "▸"}</button> {job.tool} <span class="sub">{label.slice(0, 60)}</span></h3>
        <span class={`pill ${job.state}`}>{job.state}{took && ` · ${took}`}</span>
        {alive && <button type="button" onClick={() => void api.cancelJob(job.id)}>cancel</button>}
      </header>
      {job.state === "running" && <Progress share={job.share} label={`${job.part || "work"} of ${job.tool}`} />}
      {job.state === "running" && job.part && <p class="hint">{job.part}</p>}
      {job.state === "failed" && <p class="error" role="alert">{job.lines[job.lines.length - 1] ?? "failed"}</p>}
      {shown && job.state === "done" && (
        <>
          {sounds.length > 0 && <Rack title={job.tool} sounds={sounds.map((path) => ({ key: path, name: name(path), url: source.url(path), colour: "var(--accent)" }))} />}
          {others.map((path) => <Result path={path} key={path} />)}
          {job.lines.length > 0 && <pre class="said">{job.lines.join("\n")}</pre>}
        </>
      )}
      {shown && <Copy text={job.command} label="the command that makes the same" />}
    </article>
  );
}

export function PlayView() {
  const { jobs, runs } = useStore();
  const tools = useLoaded("tools", () => api.tools());
  const files = useLoaded(`files${[...runs.values()].map((run) => run.checkpoints_saved).join()}`, () => api.modelFiles()).value ?? [];
  const [name, setName] = useState("");
  const [values, setValues] = useState<Record<string, Values>>({});
  const [more, setMore] = useState(false);
  const [error, setError] = useState("");
  const newest = useRef("");
  useEffect(() => {
    void api.jobs().then((all) => change({ jobs: all }));
  }, []);
  if (!tools.value) return <Empty>{tools.error || "loading…"}</Empty>;
  if (tools.value.length === 0) return <Empty>This studio only watches (<code>--watch_only</code>).</Empty>;
  // At first something that a run is there for.
  const known = new Set([...[...runs.values()].map((run) => run.task), ...files.map((file) => file.task)]);
  const able = (one: Tool) => mainTasks(one).some((task) => known.has(task));
  const tool = tools.value.find((one) => one.name === name) ?? tools.value.find(able) ?? tools.value[0];
  // A folder of runs is this one, and the run that it all starts from the newest that fits.
  const preset: Values = {};
  for (const option of tool.options) {
    if (option.kind !== "run" || (option.name !== "from" && !tool.helpers.includes(option.name))) continue;
    const newest = [...runs.values()].filter((run) => option.tasks?.includes(run.task)).sort((a, b) => b.updated - a.updated);
    preset[option.name] = option.help.startsWith("folder") ? "." : (newest[0]?.id ?? files.find((file) => !file.run && option.tasks?.includes(file.task))?.path ?? "");
  }
  const own: Values = { ...preset, ...values[tool.name] };
  const set = (option: string, value: string) => setValues({ ...values, [tool.name]: { ...own, [option]: value } });
  const send = async () => {
    setError("");
    try {
      const settings = Object.fromEntries(Object.entries(own).filter(([, value]) => value !== ""));
      newest.current = (await api.addJob(tool.name, settings, "")).id;
      change({ jobs: await api.jobs() });
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem));
    }
  };
  const rest = tool.options.filter((option) => !first(option));
  return (
    <div class="playground">
      <form class="card" aria-label="what to make" onSubmit={(event) => { event.preventDefault(); void send(); }}>
        <div class="field">
          <label for="tool">make</label>
          <select id="tool" value={tool.name} onChange={(e) => setName(e.currentTarget.value)}>
            {tools.value.map((one) => <option value={one.name}>{one.name}{able(one) ? "" : " (no run yet)"}</option>)}
          </select>
          <p class="help">{tool.about}</p>
        </div>
        {tool.options.filter(first).map((option) => <Field key={tool.name + option.name} option={option} files={files} value={own[option.name] ?? ""} set={(value) => set(option.name, value)} />)}
        {rest.length > 0 && (
          <details open={more} onToggle={(e) => setMore(e.currentTarget.open)}>
            <summary>more settings ({rest.length})</summary>
            {more && rest.map((option) => <Field key={tool.name + option.name} option={option} files={files} value={own[option.name] ?? ""} set={(value) => set(option.name, value)} />)}
          </details>
        )}
        {error && <p class="error" role="alert">{error}</p>}
        <button type="submit" class="accent">make it</button>
        <Kept jobs={jobs} />
      </form>
      <div class="jobs" role="region" aria-label="what was made">
        <span class="unseen" aria-live="polite">{jobs[0] && `${jobs[0].tool}: ${jobs[0].state}`}</span>
        {jobs.length === 0 && <Empty>What you make appears here, with the command that makes the same again.</Empty>}
        {jobs.slice(0, 40).map((job, i) => <JobCard job={job} key={job.id} open={i === 0 || job.id === newest.current} />)}
      </div>
    </div>
  );
}
