// Blind tests: ABX between versions and between codecs, and ratings.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export async function blind(test) {
  const { page, url, work, check, until, shot } = test;
  await page.goto(`${url}#/blind`);
  await page.getByLabel("original", { exact: true }).check();
  await page.getByLabel("Opus 6 kbit/s").check();
  await page.getByLabel("trials").fill("3");
  await page.getByLabel("listener").fill("the test");
  await page.getByRole("button", { name: "start" }).click();
  // A listener who knows every recording by heart. They last half a second: one that was over before anybody looked is played again.
  const hear = (key) =>
    until(`one recording alone after ${key}`, async () => {
      await page.keyboard.press(key);
      await page.waitForTimeout(60);
      const heard = await page.evaluate(() => window.heardNow());
      return heard.length === 1 && heard[0];
    });
  const takeTest = async (name) => {
    const sounds = [];
    for (let trial = 1; trial <= 3; ++trial) {
      await page.getByText(`trial ${trial} of 3`).waitFor();
      const answer = (which) => page.getByRole("button", { name: `X is ${which}` });
      await until("sounds of the trial", () => answer("A").isEnabled());
      const a = await hear("a"), x = await hear("x"), b = await hear("b");
      if (a === b || (x !== a && x !== b)) throw new Error(`A, X and B of trial ${trial}: ${a}, ${x}, ${b}`);
      if (trial === 1) await shot(page, name);
      sounds.push({ a, b, x: x === a ? "a" : "b" });
      await answer(x === a ? "A" : "B").click();
    }
    await page.getByRole("region", { name: "your result" }).waitFor();
    const folder = join(work, "runs/studio/blind");
    const newest = readdirSync(folder).map((file) => JSON.parse(readFileSync(join(folder, file), "utf8"))).sort((p, q) => q.time - p.time)[0];
    check(newest.trials.every((trial, i) => trial.x === sounds[i].x && trial.answer === sounds[i].x) && newest.result.abx[0].hits === 3, "X was what it is kept as: who knows the recordings has 3 of 3 right");
    const byName = new Set(newest.trials.flatMap((trial, i) => [`${trial.item} ${trial.a} ${sounds[i].a}`, `${trial.item} ${trial.b} ${sounds[i].b}`]));
    check(byName.size === 2 * new Set(newest.trials.map((trial) => trial.item)).size, "and every name stands for one recording of an item");
    return newest;
  };
  const result = await takeTest("blind-wide-dark");
  check(readdirSync(join(work, "runs/studio/blind")).length === 1 && result.trials.length === 3, "a blind test was taken and is kept in the runs' folder");
  const { low, high, share } = result.result.abx[0];
  const mark = page.getByRole("region", { name: "your result" }).locator("svg.interval");
  const ends = await mark.locator("line.range").evaluate((line) => ["x1", "x2"].map((end) => (Number(line.getAttribute(end)) - 4) / 192));
  check(share === 1 && Math.abs(ends[0] - low) < 1e-6 && Math.abs(ends[1] - high) < 1e-6, `its interval is drawn: ${low.toFixed(3)} to ${high.toFixed(3)}`);
  // Two checkpoints, of two codecs.
  await page.getByLabel("original", { exact: true }).uncheck();
  await page.getByLabel("Opus 6 kbit/s").uncheck();
  await page.getByLabel("choose short").check();
  await page.getByLabel("short · ema · step 40").check();
  await page.getByLabel("live · ema · step 40").check();
  await page.getByRole("button", { name: "start" }).click();
  const codecs = await takeTest("blind-codecs-wide-dark");
  check([codecs.result.abx[0].a, codecs.result.abx[0].b].sort().map((name) => name.split(" ")[0]).join() === "live,short", "checkpoints of two codecs can be compared blindly");
  await page.getByLabel("live · ema · step 40").uncheck();
  await page.getByLabel("short · ema · step 40").uncheck();
  await page.getByLabel("choose short").uncheck();
  await page.getByLabel("original", { exact: true }).check();
  await page.getByLabel("Opus 6 kbit/s").check();

  await page.getByRole("radio", { name: "scale: two or more" }).click();
  await page.getByLabel("anchor").check();
  await page.getByLabel("items", { exact: true }).fill("1");
  await page.getByRole("button", { name: "start" }).click();
  await page.getByText("item 1 of 1").waitFor();
  await until("sounds of the item", () => page.locator(".scale button.big").first().isEnabled());
  for (const key of ["r", "a", "b", "c"]) await page.keyboard.press(key);
  for (const [letter, rating] of [["A", "30"], ["B", "90"], ["C", "60"]]) await page.getByLabel(`rating of ${letter}`).fill(rating);
  await shot(page, "scale-wide-dark");
  await page.getByRole("button", { name: "next" }).click();
  await page.getByRole("region", { name: "your result" }).waitFor();
  const rated = readdirSync(join(work, "runs/studio/blind")).map((name) => JSON.parse(readFileSync(join(work, "runs/studio/blind", name), "utf8"))).find((test) => test.kind === "scale");
  check(rated.result.scale.length === 3 && rated.trials[0].ratings["anchor: the original below 3.5 kHz"] >= 30, "versions were rated, the original and a low anchor hidden among them");
  await shot(page, "results-wide-dark");
}
