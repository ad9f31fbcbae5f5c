// Small things that several views show.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "./parts.css";
import { percent } from "./format";
import { moveFocus } from "./keys";
import { colourOf } from "./store";
import type { Run } from "./types";

const kStateWords: Record<Run["state"], string> = {
  running: "running",
  finished: "finished",
  stopped: "stopped",
  failed: "failed",
  silent: "silent",
};

export function StatePill({ run }: { run: Run }) {
  const why = run.state === "silent" ? "no news for a while, and no last word" : run.reason;
  return (
    <span class={`pill ${run.state}`} title={why}>
      {kStateWords[run.state]}
    </span>
  );
}

export const Dot = ({ id }: { id: string }) => <i class="dot" style={{ background: colourOf(id) }} aria-hidden="true" />;

export function Progress({ share, label }: { share: number; label: string }) {
  const value = Math.min(1, Math.max(0, share || 0));
  return (
    <div class="progress" role="progressbar" aria-label={label} aria-valuenow={Math.round(value * 100)} aria-valuemin={0} aria-valuemax={100}>
      <i style={{ width: `${value * 100}%` }} />
    </div>
  );
}

export function Health({ run }: { run: Run }) {
  const signs: { text: string; bad: boolean; title: string }[] = [];
  if (run.skipped_total > 0)
    signs.push({ text: `${run.skipped_total} skipped`, bad: true, title: "steps whose loss or gradient was not finite" });
  if (run.rollbacks > 0) signs.push({ text: `${run.rollbacks} rollbacks`, bad: true, title: "times it went back to a checkpoint" });
  if (run.code_use !== undefined && run.code_use !== null)
    signs.push({
      text: `${percent(run.code_use)} of codes`,
      bad: run.code_use < 0.1,
      title: "share of the codebooks in use at the last validation, mean over the quantizers",
    });
  if (run.warnings > 0) signs.push({ text: `${run.warnings} warning${run.warnings > 1 ? "s" : ""}`, bad: true, title: run.last_warning });
  if ((run.data_wait_share ?? 0) > 0.2)
    signs.push({ text: `${percent(run.data_wait_share!)} waiting`, bad: true, title: "share of the last steps spent waiting for data" });
  if (!signs.some((sign) => sign.bad)) signs.unshift({ text: "healthy", bad: false, title: "no skipped steps, rollbacks or warnings" });
  return (
    <span class="health">
      {signs.map((sign) => (
        <span class={`chip ${sign.bad ? "bad" : "good"}`} title={sign.title}>
          {sign.text}
        </span>
      ))}
    </span>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty-note">{children}</div>;
}

export function Toggle({ on, set, children, title }: { on: boolean; set: (on: boolean) => void; children: ComponentChildren; title?: string }) {
  return (
    <button type="button" class={`toggle ${on ? "on" : ""}`} aria-pressed={on} title={title} onClick={() => set(!on)}>
      {children}
    </button>
  );
}

export function Choice<T extends string>({ value, set, options, label }: { value: T; set: (value: T) => void; options: [T, string][]; label: string }) {
  return (
    <span class="segmented" role="radiogroup" aria-label={label} onKeyDown={(event) => moveFocus(event)?.click()}>
      {options.map(([one, text]) => (
        <button type="button" role="radio" aria-checked={one === value} tabIndex={one === value ? 0 : -1} class={one === value ? "on" : ""} onClick={() => set(one)}>
          {text}
        </button>
      ))}
    </span>
  );
}

export function Copy({ text, label }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  return (
    <span class="copy">
      <code tabIndex={0}>{text}</code>
      <button
        type="button"
        aria-label={`copy ${label ?? "the command"}`}
        onClick={() => void navigator.clipboard?.writeText(text).then(() => (setDone(true), setTimeout(() => setDone(false), 1500)))}
      >
        {done ? "copied" : "copy"}
      </button>
    </span>
  );
}

// Whether an element is on the screen, so that what nobody sees is not fetched.
export function useVisible<T extends HTMLElement>() {
  const ref = useRef<T>(null);
  const [visible, setVisible] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => setVisible(entries[entries.length - 1].isIntersecting), { rootMargin: "200px" });
    observer.observe(ref.current!);
    return () => observer.disconnect();
  }, []);
  return { ref, visible };
}

// What a promise gave last; asked again when the key changes, and what was there stays until then.
export function useLoaded<T>(key: string, load: () => Promise<T>): { value: T | null; error: string } {
  const [got, setGot] = useState<{ value: T | null; error: string }>({ value: null, error: "" });
  useEffect(() => {
    let current = true;
    load().then(
      (value) => current && setGot({ value, error: "" }),
      (error: unknown) => current && setGot((before) => ({ ...before, error: String(error instanceof Error ? error.message : error) })),
    );
    return () => {
      current = false;
    };
  }, [key]);
  return got;
}
