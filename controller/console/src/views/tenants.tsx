// The tenants of a bucket with their shares, the most refused first; a click asks why.

import { useState } from 'preact/hooks';
import { Pages } from './buckets';
import type { Ask } from './dialogs';
import { percent, plural, rate } from '../data/format';
import type { View } from '../data/stream';
import type { BucketDetail } from '../data/wire';

interface Props {
  detail: BucketDetail;
  view: View;
  change(part: Partial<View>): void;
  ask(ask: Ask): void;
}

export function Tenants({ detail, view, change, ask }: Props) {
  const { tenants, row } = detail;
  const [name, setName] = useState('');
  const why = (tenant: string) => ask({ kind: 'why', tenant, bucket: row.name });
  const verb = row.mode === 'enforce' && !row.killed ? 'Refused' : 'Would refuse';
  return (
    <section aria-labelledby="tenants">
      <div class="head">
        <h3 id="tenants">Tenants</h3>
        {tenants.total > 5 && (
          <input type="search" placeholder="Search" aria-label="Search tenants" value={view.tenant} maxLength={64}
            onInput={(event) => change({ tenant: event.currentTarget.value, tenant_page: 0 })} />
        )}
      </div>
      {tenants.total === 0 && <p>No shares yet: no rates have been sent.</p>}
      {tenants.total > 0 && tenants.matching === 0 && <p>None of {plural(tenants.total, 'tenant')} has “{view.tenant}” in its name.</p>}
      {tenants.matching > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Tenant</th><th scope="col" class="number wide">Weight</th><th scope="col" class="number">Offered/s</th>
              <th scope="col" class="number">Share/s</th><th scope="col" class="number">{verb}</th>
            </tr>
          </thead>
          <tbody>
            {tenants.rows.map((it) => (
              <tr key={it.tenant}>
                <th scope="row">
                  <button class="link" aria-label={`Why ${it.tenant}`} onClick={() => why(it.tenant)}>{it.tenant}</button>
                  {it.grants.plan !== null && <span class="under">{it.grants.plan}</span>}
                </th>
                <td class="number wide">{rate(it.grants.weight)}</td>
                <td class="number">{rate(it.offered_rps)}</td>
                <td class="number">{rate(it.allocated_rps)}</td>
                <td class="number">
                  {it.law_ratio >= 0.0005 ? <strong class="refused">{percent(it.law_ratio)}</strong> : percent(0)}
                  {it.at_tenant_limit && it.law_ratio > 0 && <span class="under">its own limit</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <Pages page={tenants} noun="tenant" go={(to) => change({ tenant_page: to })} />
      <form class="ask" onSubmit={(event) => { event.preventDefault(); if (name.trim() !== '') why(name.trim()); }}>
        <label for="why">Why is a tenant refused?</label>
        <input id="why" value={name} placeholder="its name, listed or not" maxLength={128} onInput={(event) => setName(event.currentTarget.value)} />
        <button>Ask</button>
      </form>
    </section>
  );
}
