// Who a key belongs to, and how it moves the focus.

// Whether the element in focus has a use of its own for this key, so that the view's keys keep off: letters in a field, arrows
// on a slider, space on a button or a box to tick.
export function isTaken(event: KeyboardEvent): boolean {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return true;
  const target = event.target;
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.matches("textarea, select, input:not([type=range], [type=checkbox], [type=radio])")) return true;
  if (target.matches("input[type=range]")) return /^(Arrow|Home|End|Page)/.test(event.key);
  return event.key === " " && target.matches("button, summary, input[type=checkbox], input[type=radio]");
}

// Arrows go from button to button of a group that is one stop for the tabulator.
export function moveFocus(event: KeyboardEvent & { currentTarget: HTMLElement }): HTMLElement | null {
  const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  if (!by) return null;
  const all = [...event.currentTarget.querySelectorAll("button")], at = all.indexOf(event.target as HTMLButtonElement);
  const next = all[(at + by + all.length) % all.length];
  next?.focus();
  event.preventDefault();
  return next ?? null;
}
