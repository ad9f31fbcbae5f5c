// A report: one file, no server.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expectedIn } from "./parts.mjs";

export async function sharing(test) {
  const { page, work, training, studio, check, until, run, shot, open } = test;
  training.kill("SIGTERM");
  await until("the end of the training", () => training.code !== undefined || training.signalCode);
  run("studio", "export", "runs/live", "runs/short", "runs/pictures", "-o", "report.html");
  await page.close(); // it would ask for a studio that is gone, and say that it is not there
  studio.kill("SIGTERM");
  await until("the end of the studio", () => studio.code !== undefined);
  check(studio.code === 0, "the studio ends when it is told to");
  const report = await open({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
  const asked = [];
  report.on("request", (request) => /^(data|blob|file):/.test(request.url()) || asked.push(request.url()));
  await report.goto(`file://${join(work, "report.html")}#/curves`);
  await report.getByLabel("choose live").check();
  const drawn = report.locator('[data-plot="loss/generator.loss"] .plot');
  await until("curves from disk", () => drawn.evaluate((element) => element.plot?.data[0].length > 10));
  check(await expectedIn(test, drawn), "with what was expected");
  await shot(report, "report-curves-light");
  await report.goto(`file://${join(work, "report.html")}#/run/live`);
  await report.getByText("melete train soundstream --config tiny.toml").waitFor();
  check(true, "and the command that trained the run");
  await report.goto(`file://${join(work, "report.html")}#/run/short`);
  const figures = readFileSync(join(work, "runs/short/eval", readdirSync(join(work, "runs/short/eval")).find((name) => name.endsWith(".tsv"))), "utf8").trim().split("\n").map((line) => line.split("\t"));
  const row = report.getByRole("row", { name: figures[1][0] });
  await row.first().waitFor();
  check((await row.first().textContent()).includes(figures[1][1]), `figures of the evaluation: ${figures[1][0]} ${figures[1][1]}`);
  await shot(report, "report-run-light");
  await report.getByLabel("choose short").check();
  await report.goto(`file://${join(work, "report.html")}#/settings`);
  await until("settings from disk", async () => (await report.locator("tr.differs th").allTextContents()).includes("train.steps"));
  check((await report.locator("tr.differs").filter({ hasText: "train.steps" }).textContent()).includes("100000"), "settings, as they differ");
  await report.getByLabel("choose pictures").check();
  await report.goto(`file://${join(work, "report.html")}#/listen/picture/reconstructions`);
  await until("pictures from disk", () => report.locator(".frame img").evaluateAll((images) => images.length >= 2 && images.every((image) => image.naturalWidth > 32)));
  check(true, "and pictures");
  await report.getByLabel("choose pictures").uncheck();
  await report.goto(`file://${join(work, "report.html")}#/listen`);
  await until("sound from disk", () => report.evaluate(() => window.studioPlayer?.tracks.size >= 3));
  check(asked.length === 0, "the report opens from disk and asks nobody");
  check((await report.getByRole("link", { name: "Playground" }).count()) === 0, "and offers nothing that needs a server");
}
