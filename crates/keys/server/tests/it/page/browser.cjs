// What a reader of the fleet page does, done in Chromium: each check that fails ends the run with its reason.
// Settings come from the environment, set by page_browser.rs. Must not: reach for anything but the servers that the test started.
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { chromium } = require('playwright-core');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const { FLEET, FLEET_FILES, EMPTY, EMPTY_FILES, SEALED, SHOTS } = process.env;
const origin = (port) => `https://localhost:${port}`;
let browser;

// A context that shows a certificate, or none, and fails at the first complaint of the browser.
async function reader(port, files, who, options = {}) {
  const clientCertificates = who && [{
    origin: origin(port),
    certPath: path.join(files, `${who}.pem`),
    keyPath: path.join(files, `${who}.key`),
  }];
  const context = await browser.newContext({ ignoreHTTPSErrors: true, clientCertificates, viewport: { width: 1400, height: 900 }, ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('dialog', (dialog) => { complaints.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith(`${origin(port)}/`)) complaints.push(`request ${request.url()}`); });
  return { context, page, complaints };
}

async function sound(name, { page, complaints }, { scripts = true, status = 200 } = {}) {
  const failing = complaints.filter((text) => !(status !== 200 && text.includes(`status of ${status}`)));
  assert.deepEqual(failing, [], name);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth).catch(() => 0);
  assert.equal(wide, 0, `${name}: wider than the window by ${wide}`);
  if (scripts) {
    await page.evaluate(axe);
    const found = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
    const told = found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html).join(' | ')}`);
    assert.deepEqual(told, [], `${name}: accessibility`);
  }
  await page.screenshot({ path: path.join(SHOTS, `${name}.png`) });
}

async function looks() {
  for (const [name, scheme, width] of [['light', 'light', 1400], ['dark', 'dark', 1400], ['narrow', 'light', 390], ['narrow-dark', 'dark', 390]]) {
    const one = await reader(FLEET, FLEET_FILES, 'viewer', { colorScheme: scheme, viewport: { width, height: 900 } });
    const at = (to) => one.page.goto(origin(FLEET) + to);
    await at('/');
    await one.page.locator('table.objects tbody tr').nth(99).waitFor();
    await sound(`overview-${name}`, one);
    await one.page.locator('#list').scrollIntoViewIfNeeded();
    await one.page.screenshot({ path: path.join(SHOTS, `list-${name}.png`) });
    for (const [what, to] of [
      ['object', `/fleet/objects/${'0'.repeat(31)}7`], ['hostile', `/fleet/objects/${'f'.repeat(32)}`], ['plain', `/fleet/objects/${'e'.repeat(32)}`],
      ['ahead', `/fleet/objects/${'d'.repeat(32)}`], ['keys', '/fleet/keys'], ['key', '/fleet/keys/databases'], ['nodes', '/fleet/nodes'], ['node', '/fleet/nodes/db-1.example'],
    ]) {
      await at(to);
      await sound(`${what}-${name}`, one);
    }
    await at('/?q=clock');
    assert.equal(await one.page.locator('table.objects tbody tr').count(), 1);
    assert.match(await one.page.locator('table.objects tbody tr').innerText(), /future/);
    await one.context.close();
  }
}

// With scripts switched off: everything that can be done works.
async function without_scripts() {
  const one = await reader(FLEET, FLEET_FILES, 'viewer', { javaScriptEnabled: false });
  const { page } = one;
  await page.goto(`${origin(FLEET)}/`);
  await page.getByLabel('Kind').selectOption('volume');
  await page.getByRole('button', { name: 'Show' }).click();
  await page.waitForURL(/kind=volume/);
  const kinds = await page.locator('td[data-label=Kind]').allInnerTexts();
  assert.ok(kinds.length > 50 && kinds.every((kind) => kind.trim().endsWith('Volume')), `${kinds.length} ${kinds[0]}`);
  await page.getByRole('link', { name: 'Last backup' }).first().click();
  await page.waitForURL(/sort=backup/);
  assert.equal(await page.locator('th[aria-sort=ascending]').innerText(), 'Last backup');
  assert.ok(page.url().includes('kind=volume'), 'the order keeps the filter');
  await page.getByRole('link', { name: 'Clear' }).click();
  await page.getByRole('link', { name: 'Next' }).click();
  assert.match(await page.locator('.pager').innerText(), /Page 2 of 3/);
  const name = await page.locator('tbody th a').first().innerText();
  await page.locator('tbody th a').first().click();
  assert.equal((await page.locator('h1').innerText()).trim(), name.trim());
  const ground = () => page.locator('meta[name=color-scheme]').count();
  assert.equal(await ground(), 1);
  await page.getByRole('button', { name: 'Dark' }).click();
  await page.waitForLoadState();
  assert.equal(await page.locator('html').getAttribute('data-theme'), 'dark');
  assert.equal((await page.locator('h1').innerText()).trim(), name.trim(), 'the choice leads back');
  await page.goto(`${origin(FLEET)}/fleet/keys`);
  assert.equal(await page.locator('html').getAttribute('data-theme'), 'dark', 'the choice is kept');
  await page.getByRole('button', { name: 'Auto' }).click();
  await page.waitForLoadState();
  assert.equal(await page.locator('html').getAttribute('data-theme'), null);
  assert.deepEqual(one.complaints, []);
  await one.context.close();
}

async function chosen_theme_wins() {
  const one = await reader(FLEET, FLEET_FILES, 'viewer', { colorScheme: 'dark' });
  await one.page.goto(`${origin(FLEET)}/`);
  const ground = () => one.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  await one.page.getByRole('button', { name: 'Light' }).click();
  await one.page.locator('html[data-theme=light]').waitFor();
  assert.notEqual(await ground(), dark);
  await one.context.close();
}

async function keyboard() {
  const one = await reader(FLEET, FLEET_FILES, 'viewer');
  await one.page.goto(`${origin(FLEET)}/`);
  await one.page.keyboard.press('Tab');
  assert.equal(await one.page.evaluate(() => document.activeElement.textContent), 'Skip to content');
  await one.page.keyboard.press('Enter');
  assert.ok(one.page.url().endsWith('#main'));
  await one.context.close();
}

async function refusals() {
  for (const [name, port, files, who, status, text] of [
    ['sealed', SEALED, '', '', 503, /0 of 2/], ['no-certificate', FLEET, '', '', 401, /Certificate needed/],
    ['node-certificate', FLEET, FLEET_FILES, 'node', 403, /Not for this certificate/], ['empty', EMPTY, EMPTY_FILES, 'viewer', 200, /No node has reported/],
  ]) {
    const one = await reader(port, files, who);
    const answer = await one.page.goto(`${origin(port)}/`);
    assert.equal(answer.status(), status, name);
    assert.match(await one.page.locator('main').innerText(), text);
    await sound(name, one, { status });
    await one.context.close();
  }
}

(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox'] });
  try {
    await refusals();
    await without_scripts();
    await chosen_theme_wins();
    await keyboard();
    await looks();
    console.log('all checks passed');
  } finally {
    await browser.close();
  }
})().catch((error) => { console.error(error); process.exitCode = 1; });
