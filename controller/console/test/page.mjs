// Drives the console in Chromium against a real fleet, which the test that starts this script changes when it is told so by
// a line on standard output. Fails with an error.
//
// Arguments: the address of the page, through a proxy that can be cut, the address of the admin port, and the pages of two
// controllers of an empty fleet; environment: TOKENS, an object of tokens by role, CHROMIUM, and IMAGES, a folder for pictures.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { gzipSync } from 'node:zlib';
import { chromium } from 'playwright-core';

const [page_url, admin_url, ...members] = process.argv.slice(2);
const tokens = JSON.parse(process.env.TOKENS);
const here = new URL('..', import.meta.url);
const BYTES_MAX = 100_000;
const PATIENCE_MS = 60_000;
/** Pictures show a past. */
const PAST_MS = 240_000;

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
/** Asks the test for a change of the fleet, and waits until it is made. */
async function change(what) {
  console.log(`change ${what}`);
  await answers.next();
}

async function admin(path) {
  const answer = await fetch(admin_url + path, { headers: { authorization: `Bearer ${tokens.viewer}` } });
  assert.equal(answer.status, 200, path);
  return answer.json();
}

async function until(what, holds) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    assert(Date.now() < end, `timeout while waiting for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: 'light' });
context.setDefaultTimeout(PATIENCE_MS);
const page = await context.newPage();
const sent = [];
page.on('request', (request) => sent.push(request.url()));
const faults = [];
page.on('pageerror', (error) => faults.push(String(error)));
page.on('console', (line) => line.type() === 'error' && !/Failed to load resource/.test(line.text()) && faults.push(line.text()));
const button = (name) => page.getByRole('button', { name, exact: typeof name === 'string' });
const dialog = page.getByRole('dialog');

async function signIn(role, token = tokens[role]) {
  await page.getByLabel('Token of this controller').fill(token);
  await button('Sign in').click();
}

async function signInAs(role) {
  await button('Sign out').click();
  await signIn(role);
  await page.getByText(`(${role})`).waitFor();
}

async function order(opens, confirms, fill = {}) {
  await button(opens).first().click();
  for (const [label, text] of Object.entries(fill)) await dialog.getByLabel(label).fill(text);
  await dialog.getByRole('button', { name: confirms }).click();
}

async function picture(name) {
  await page.evaluate(() => scrollTo(0, 0));
  if (process.env.IMAGES) await page.screenshot({ path: `${process.env.IMAGES}/${name}.png` });
}

async function accessible(where) {
  await page.evaluate(readFileSync(new URL('node_modules/axe-core/axe.min.js', here), 'utf8'));
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter((it) => ['serious', 'critical'].includes(it.impact));
  assert.deepEqual(serious.map((it) => [it.id, it.nodes.map((node) => node.html).slice(0, 3)]), [], where);
}

// The files are small, come from here, and are shown by nothing else.
const files = readdirSync(new URL('dist', here));
const bytes = files.reduce((sum, name) => sum + gzipSync(readFileSync(new URL(`dist/${name}`, here))).length, 0);
console.log(`compressed ${bytes} bytes`);
assert(bytes <= BYTES_MAX, `${bytes} bytes`);
const index = await fetch(`${admin_url}/`);
assert.match(index.headers.get('content-security-policy'), /default-src 'self'.*frame-ancestors 'none'/);
const again = await fetch(`${admin_url}/console/app.js`, { headers: { 'if-none-match': (await fetch(`${admin_url}/console/app.js`)).headers.get('etag') } });
assert.equal(again.status, 304);

// A token belongs into the page, and nowhere else.
for (const [path, authorization] of [['/?token=x', ''], ['/console/stream?token=x', `Bearer ${tokens.viewer}`]]) {
  const answer = await fetch(admin_url + path, { headers: { authorization } });
  assert.equal(answer.status, 400, path);
}
await page.goto(page_url);
await signIn('wrong', 'plimsoll_wrong');
await page.getByText('the token is not among those of this admin port').waitFor();
await signIn('viewer');
await page.locator('.verdict').waitFor();
const painted = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
console.log(`first paint after ${Math.round(painted)} ms`);

// A surge is seen.
const row = page.getByRole('row').filter({ has: page.getByRole('button', { name: 'checkout', exact: true }) });
await row.waitFor();
await change('surge');
await row.locator('.refused').waitFor();

// By keys alone: the search, then the bucket, whose title has the focus.
await page.keyboard.press('/');
await page.keyboard.type('check');
await page.getByRole('button', { name: 'search', exact: true }).waitFor({ state: 'detached' });
await page.keyboard.press('Tab');
await page.keyboard.press('Tab');
await page.keyboard.press('Enter');
await page.locator('.uplot canvas').waitFor();
assert.equal(await page.evaluate(() => document.activeElement.textContent), 'checkout');
await page.getByLabel('Search buckets').fill('');

// Why.
await page.getByRole('button', { name: 'Why acme' }).click();
await dialog.getByText(/^acme/).first().waitFor();
await accessible('why');
await page.keyboard.press('Escape');
await dialog.waitFor({ state: 'detached' });

// A wrong role is told before, and refused with a sentence.
await page.getByRole('button', { name: 'search', exact: true }).click();
const stage = async () => (await admin('/rollout')).find((it) => it.entry === 'search').stage;
const reason = { 'Reason, for the events and the audit log': 'a test in a browser' };
await order(/^Promote to canary/, 'Promote by force', reason);
await dialog.getByText('Not done: this route needs the role operator').waitFor();
await button('Cancel').click();
assert.equal(await stage(), 'shadow');

// Promote, and return.
await signInAs('operator');
await order(/^Promote to canary/, 'Promote by force', reason);
await until('canary', async () => (await stage()) === 'canary');
await page.getByText('search is in canary').waitFor();
await order(/^Return to shadow/, 'Return to shadow', reason);
await until('shadow', async () => (await stage()) === 'shadow');

// Kill, end and resume, and the fleet follows.
const fleet = async () => (await admin('/kill')).fleet;
await order('Kill switch…', 'Kill the fleet', reason);
await until('the kill', async () => (await fleet()).killed);
assert.equal((await fleet()).command.reason, 'a test in a browser');
await row.getByText('killed').waitFor();
await accessible('killed');
await order('End the kill…', 'End the kill', reason);
await until('its end', async () => !(await fleet()).killed);
const checkout = async () => (await admin('/rollout')).find((it) => it.entry === 'checkout').stage;
assert.equal(await checkout(), 'shadow');
await order('Resume…', /^Resume \d/, { ...reason, 'Type resume to confirm': 'resume' });
await until('the stage before', async () => (await checkout()) === 'enforce');
await row.locator('.refused').waitFor();

// A policy that waits, with its effect, is applied by an admin.
await change('tighten');
await page.getByText('~ buckets.checkout.limit').waitFor();
await signInAs('admin');
await page.getByText('Effect on the traffic of the last minutes').waitFor();
await page.getByRole('button', { name: 'checkout', exact: true }).click();
await page.locator('.uplot canvas').waitFor();
await page.getByText('The same as a table').waitFor();
await accessible('light');
if (process.env.IMAGES) await page.waitForTimeout(PAST_MS);
await picture('console-light');
await page.emulateMedia({ colorScheme: 'dark' });
await accessible('dark');
await picture('console-dark');
await page.setViewportSize({ width: 400, height: 860 });
await until('no sideways scrolling', () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
await accessible('narrow');
await picture('console-narrow');
await page.setViewportSize({ width: 1280, height: 900 });
const waiting = (await admin('/policy')).held.hash;
await order('Apply…', 'Apply', reason);
await until('the policy', async () => (await admin('/policy')).in_force === waiting);
await dialog.waitFor({ state: 'detached' });

// A cut stream is told, with the age of the values, and opened again.
await change('cut');
await page.getByText(/The values below are \d+ s old/).waitFor();
await accessible('cut');
await picture('console-cut');
await change('restore');
await page.getByText(/The values below are/).waitFor({ state: 'detached' });

// A token that is withdrawn ends the stream, with the age of the values and a place for another one.
await change('withdraw');
const withdrawn = { headers: { authorization: `Bearer ${tokens.admin}` } };
await until('the withdrawal', async () => (await fetch(`${admin_url}/status`, withdrawn)).status === 401);
await change('cut');
await page.getByText(/The values below are \d+ s old/).waitFor();
await change('restore');
await page.getByText('The stream ended, because the token is not accepted').waitFor();
await signIn('viewer');
await page.getByText('(viewer)').waitFor();

// A clock that is off is told.
const early = await context.newPage();
await early.addInitScript(() => {
  const now = Date.now;
  Date.now = () => now() - 3_600_000;
});
await early.goto(page_url);
await early.getByLabel('Token of this controller').fill(tokens.viewer);
await early.getByRole('button', { name: 'Sign in' }).click();
await early.getByText(/The clock of this machine is (59|60) min behind/).waitFor();

// Of two controllers without a fleet one says what is missing, and the other one leads to it.
const EMPTY = 'No aggregator has reported yet';
if (members.length > 0) {
  const ask = async (url) => ({ url, leads: (await fetch(`${url}lead`)).status === 200 });
  let asked = [];
  await until('a leader', async () => (asked = await Promise.all(members.map(ask))).some((it) => it.leads));
  const empty = await context.newPage();
  await empty.goto(asked.find((it) => it.leads).url);
  await empty.getByText(EMPTY).waitFor();
  await empty.getByText('No bucket yet').waitFor();
  await empty.goto(asked.find((it) => !it.leads).url);
  await empty.getByText('This controller stands by').waitFor();
  await empty.getByRole('link', { name: /^http/ }).click();
  await empty.getByText(EMPTY).waitFor();
}

const leaked = sent.filter((url) => Object.values(tokens).some((token) => url.includes(token)) || new URL(url).host !== new URL(page_url).host);
assert.deepEqual(leaked, []);
assert.deepEqual(faults, []);
await browser.close();
process.exit(0);
