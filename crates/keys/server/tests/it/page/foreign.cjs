// Another site's page, opened in Chromium by an administrator whose certificate is imported. Everything that a page can have a browser send
// is sent; foreign_browser.rs looks at the server afterwards. Must not: reach for anything but the servers that the test started.
'use strict';
const assert = require('node:assert/strict');
const http = require('node:http');
const path = require('node:path');
const { chromium } = require('playwright-core');

const { API, PAGE, FILES, REQUEST } = process.env;
const api = `https://localhost:${API}`;
const grant = JSON.stringify({ node: 'evil', key: 'k' });
const renewal = JSON.stringify({ csr: REQUEST });
const script = `
  const send = (to, options) => fetch('${api}' + to, { mode: 'no-cors', credentials: 'include', ...options }).catch(() => {});
  (async () => {
    await send('/v1/grants', { method: 'POST', body: ${JSON.stringify(grant)} });
    await send('/v1/renew', { method: 'POST', body: ${JSON.stringify(renewal)} });
    await send('/v1/keys/k/destroy', { method: 'POST', body: '{"after_seconds":0}' });
    await send('/v1/grants', { method: 'POST', mode: 'cors', headers: { 'content-type': 'application/json' }, body: ${JSON.stringify(grant)} });
    await new Promise((done) => { const image = new Image(); image.onload = image.onerror = done; image.src = '${api}/v1/keys/k/versions/1/material'; });
    document.title = 'sent';
  })();`;
const pages = {
  '/fetch': `<script>${script}</script>`,
  '/form': `<form method=post action="${api}/v1/keys/k/disable"></form><script>document.forms[0].submit()</script>`,
  '/plain': `<form method=post enctype=text/plain action="${api}/v1/grants"><input name='${grant.slice(0, -1)},"x":"' value='"}'></form><script>document.forms[0].submit()</script>`,
  '/theme': `<form method=post action="https://localhost:${PAGE}/v1/keys/k/disable"></form><script>document.forms[0].submit()</script>`,
};

(async () => {
  const site = http.createServer((asked, answer) => {
    answer.setHeader('content-type', 'text/html');
    answer.end(`<!doctype html><link rel=icon href="data:,">${pages[asked.url] ?? ''}`);
  });
  await new Promise((done) => site.listen(0, '127.0.0.1', done));
  const evil = `http://127.0.0.1:${site.address().port}`;
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox'] });
  try {
    const certificate = { certPath: path.join(FILES, 'admin.pem'), keyPath: path.join(FILES, 'admin.key') };
    const context = await browser.newContext({
      ignoreHTTPSErrors: true,
      clientCertificates: [{ origin: api, ...certificate }, { origin: `https://localhost:${PAGE}`, ...certificate }],
    });
    const page = await context.newPage();
    const seen = [];
    page.on('response', (answer) => { if (!answer.url().startsWith(evil)) seen.push(`${answer.request().method()} ${new URL(answer.url()).pathname} ${answer.status()}`); });
    // An answer that came and was withheld from the page counts too: it has another error than a connection that failed.
    page.on('requestfailed', (asked) => { if (!asked.url().startsWith(evil)) seen.push(`${asked.method()} ${new URL(asked.url()).pathname} ${asked.failure().errorText}`); });
    // The certificate works here: what is refused below is not refused for want of it.
    const own = await page.goto(`${api}/v1/keys`);
    assert.equal(own.status(), 200);
    await page.goto(`${evil}/fetch`);
    await page.waitForFunction(() => document.title === 'sent');
    for (const form of ['/form', '/plain', '/theme']) {
      await page.goto(`${evil}${form}`).catch(() => {});
      await page.waitForURL((url) => url.protocol === 'https:');
    }
    console.log(`SEEN ${JSON.stringify(seen)}`);
  } finally {
    await browser.close();
    site.close();
  }
})().catch((error) => { console.error(error); process.exitCode = 1; });
