// Pictures and texts.

export async function looking(test) {
  const { page, url, check, until, shot } = test;
  await page.getByLabel("choose pictures").check();
  await page.goto(`${url}#/listen/picture/reconstructions`);
  await page.locator(".frame").nth(1).click();
  const panes = page.locator("dialog .pane img");
  await until("two pictures", async () => (await panes.count()) === 2);
  await panes.first().hover({ position: { x: 60, y: 60 } });
  await page.mouse.wheel(0, -600);
  const looks = () => panes.evaluateAll((images) => images.map((image) => image.style.transform));
  await until("a closer look", async () => Number((await looks())[0].match(/scale\(([\d.]+)/)[1]) > 2);
  await page.keyboard.press("ArrowRight");
  const [one, other] = await looks();
  check(one === other && !one.includes("translate(0%, 0%)"), `two pictures are zoomed and moved together: ${one}`);
  await shot(page, "pictures-wide-dark");
  await page.getByRole("radio", { name: "one at a time" }).click();
  const first_ = await panes.first().getAttribute("src");
  await page.keyboard.press("a");
  check((await panes.count()) === 1 && (await panes.first().getAttribute("src")) !== first_, "or one after the other in the same place");
  await page.keyboard.press("Escape");
  await until("the closed viewer", async () => (await page.locator("dialog[open]").count()) === 0);
  await page.getByLabel("choose pictures").uncheck();

  // Texts
  await page.getByLabel("choose reader").check();
  await page.goto(`${url}#/listen/text/0_line`);
  await page.locator(".texts ins").first().waitFor();
  const marks = async (selector) => (await page.locator(`.texts li:first-child ${selector}`).allTextContents()).join("|");
  check((await marks("ins")) === "a mouse" && (await marks("del")) === "the house", "what was read wrongly is marked");
  await page.getByLabel("differences from").selectOption("before");
  await until("marks against the step before", async () => (await page.locator(".texts li").nth(1).locator("ins").allTextContents()).join("|") === "the house");
  await shot(page, "texts-wide-dark");
  await page.getByLabel("choose reader").uncheck();
}
