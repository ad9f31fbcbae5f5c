// What all parts of the page share: the runs, which of them are chosen, where the page is, and how it looks.
import { useEffect, useState } from "preact/hooks";
import { source } from "./source";
import type { Job, Run } from "./types";

export interface State {
  runs: Map<string, Run>;
  chosen: string[]; // ids, in the order of their colours
  connected: boolean;
  loaded: boolean;
  jobs: Job[];
  place: string[]; // parts of the address: ["run", "codec"]
  theme: "auto" | "dark" | "light";
  hideOthers: string; // filter of the list
}

const kept = (key: string) => {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // a page from disk may have no storage
  }
};
const keep = (key: string, value: string) => {
  try {
    localStorage.setItem(key, value);
  } catch {
    // then it is forgotten
  }
};

const readPlace = () => location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);

export let state: State = {
  runs: new Map(),
  chosen: JSON.parse(kept("melete.chosen") ?? "null") ?? [],
  connected: false,
  loaded: false,
  jobs: [],
  place: readPlace(),
  theme: (kept("melete.theme") as State["theme"] | null) ?? "auto",
  hideOthers: "",
};

const listeners = new Set<() => void>();

export function change(part: Partial<State>) {
  state = { ...state, ...part };
  for (const listener of [...listeners]) listener();
}

export function useStore(): State {
  const [, again] = useState(0);
  useEffect(() => {
    const listener = () => again((n) => n + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return state;
}

export function choose(ids: string[]) {
  keep("melete.chosen", JSON.stringify(ids));
  change({ chosen: ids });
}

export const toggle = (id: string) =>
  choose(state.chosen.includes(id) ? state.chosen.filter((one) => one !== id) : [...state.chosen, id]);

export const link = (...parts: string[]) => "#/" + parts.map(encodeURIComponent).join("/");

export function setTheme(theme: State["theme"]) {
  keep("melete.theme", theme);
  change({ theme });
  applyTheme();
}

export function isDark(): boolean {
  if (state.theme !== "auto") return state.theme === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

export function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

// Distinct on dark and light, also for most who see colours differently.
const kColours = {
  dark: ["#4cc2ff", "#ffb547", "#5fd68a", "#ff7a90", "#c792ff", "#f5e05a", "#4fe0d0", "#ff9d5c", "#9fb4ff", "#e07bd0"],
  light: ["#0b78c1", "#c26a00", "#1b8a4b", "#c5304b", "#7b3fc4", "#8a7a00", "#00857a", "#b34a10", "#3d55c7", "#a3328f"],
};

// By the place in the list of all runs, so that a colour stays while runs are chosen and left.
export function colourOf(id: string): string {
  const colours = isDark() ? kColours.dark : kColours.light, ids = [...state.runs.keys()].sort();
  // By the alphabet; but among the chosen ones no two alike, as long as there are enough.
  const taken = new Set<number>();
  for (const one of state.chosen.includes(id) ? state.chosen : [id]) {
    let at = Math.max(0, ids.indexOf(one)) % colours.length;
    while (taken.has(at) && taken.size < colours.length) at = (at + 1) % colours.length;
    if (one === id) return colours[at];
    taken.add(at);
  }
  return colours[0];
}

export function start() {
  applyTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    applyTheme();
    change({});
  });
  addEventListener("hashchange", () => change({ place: readPlace() }));
  source.listen({
    connected: (connected) => {
      if (connected !== state.connected) change({ connected });
    },
    jobs: (jobs) => change({ jobs }),
    runs: (changed, ids) => {
      const runs = new Map<string, Run>();
      for (const id of ids) {
        const run = changed.find((one) => one.id === id) ?? state.runs.get(id);
        if (run) runs.set(id, run);
      }
      let chosen = state.chosen.filter((id) => ids.includes(id));
      // At first the runs that are alive, or the newest ones.
      if (!state.loaded && chosen.length === 0) {
        const newest = [...runs.values()].sort((a, b) => b.updated - a.updated);
        const alive = newest.filter((run) => run.state === "running");
        chosen = (alive.length > 0 ? alive : newest).slice(0, 4).map((run) => run.id);
      }
      change({ runs, chosen, loaded: true });
    },
  });
}
