// The buckets: one page of the list, which the controller sorts and searches, each with its last ten minutes.

import { useEffect, useRef } from 'preact/hooks';
import { percent, plural, rate } from '../data/format';
import type { Past } from '../data/past';
import { Spark } from './spark';
import type { View } from '../data/stream';
import type { BucketRow, Page } from '../data/wire';

interface Props {
  page: Page<BucketRow>;
  view: View;
  change(part: Partial<View>): void;
  past: Past;
}

export function Buckets({ page, view, change, past }: Props) {
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const isTyping = event.target instanceof HTMLElement && /INPUT|TEXTAREA|SELECT/.test(event.target.tagName);
      if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      search.current?.focus();
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, []);
  return (
    <section class="buckets" id="buckets" aria-labelledby="buckets-title" tabIndex={-1}>
      <div class="head">
        <h2 id="buckets-title">Buckets</h2>
        <input ref={search} type="search" placeholder="Search ( / )" aria-label="Search buckets" value={view.search} maxLength={64}
          onInput={(event) => change({ search: event.currentTarget.value, page: 0 })} />
        <select aria-label="Order of buckets" value={view.sort}
          onChange={(event) => change({ sort: event.currentTarget.value as View['sort'], page: 0 })}>
          <option value="worst">Most refused first</option>
          <option value="offered">Most offered first</option>
          <option value="name">By name</option>
        </select>
      </div>
      {page.total === 0 ? (
        <p>No bucket yet. The policy has none by name, and no instance has asked for one that a pattern covers.</p>
      ) : page.matching === 0 ? (
        <p>None of {plural(page.total, 'bucket')} has “{view.search}” in its name.</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Bucket</th>
              <th scope="col">10 minutes</th>
              <th scope="col" class="number wide">Offered/s</th>
              <th scope="col" class="number">Admitted/s</th>
              <th scope="col" class="number wide">Limit/s</th>
              <th scope="col" class="number">Refused</th>
            </tr>
          </thead>
          <tbody>
            {page.rows.map((row) => (
              <Row key={row.name} row={row} past={past} isChosen={view.bucket === row.name}
                choose={() => change({ bucket: row.name, tenant: '', tenant_page: 0 })} />
            ))}
          </tbody>
        </table>
      )}
      <Pages page={page} noun="bucket" go={(to) => change({ page: to })} />
    </section>
  );
}

function Row({ row, past, isChosen, choose }: { row: BucketRow; past: Past; isChosen: boolean; choose(): void }) {
  const refused = Math.max(0, row.offered_rps - row.admitted_rps) / row.offered_rps;
  const would = row.would_refuse_rps / row.offered_rps;
  return (
    <tr class={isChosen ? 'chosen' : ''}>
      <th scope="row">
        <button class="link" aria-pressed={isChosen} onClick={choose}>{row.name}</button>
        <span class="under"><Stage row={row} /></span>
      </th>
      <td class="chart"><Spark points={past.of(row.name)} /></td>
      <td class="number wide">{rate(row.offered_rps)}</td>
      <td class="number">{rate(row.admitted_rps)}</td>
      <td class="number wide">{rate(row.limit_rps)}</td>
      <td class="number">
        {refused >= 0.0005 ? <strong class="refused">{percent(refused)}</strong> : percent(row.offered_rps > 0 ? 0 : null)}
        {would >= 0.0005 && <span class="under">would {percent(would)}</span>}
      </td>
    </tr>
  );
}

function Stage({ row }: { row: BucketRow }) {
  if (row.killed) return <span class="mark critical">■ killed</span>;
  if (row.mode === 'unknown') return <span class="mark warning">▲ no entry covers it</span>;
  const next = row.gate === 'pass' ? ', gate passes' : row.pending_mode !== null ? `, ${row.pending_mode} waits` : '';
  return <>{row.mode}{next}</>;
}

export function Pages({ page, noun, go }: { page: Page<unknown>; noun: string; go(page: number): void }) {
  if (page.pages < 2) return null;
  return (
    <nav class="pages" aria-label={`Pages of ${noun}s`}>
      <button disabled={page.page === 0} onClick={() => go(page.page - 1)}>Previous</button>
      <span>page {page.page + 1} of {page.pages}, {plural(page.matching, noun)}</span>
      <button disabled={page.page + 1 >= page.pages} onClick={() => go(page.page + 1)}>Next</button>
    </nav>
  );
}
