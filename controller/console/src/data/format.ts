// Numbers and times as text, the same everywhere: absent values are a dash, never a zero.

import type { Refusals } from './wire';

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const TENTH = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
export const NONE = '–';

export function rate(value: number | null): string {
  if (value === null) return NONE;
  return (value !== 0 && value < 10 ? TENTH : WHOLE).format(value);
}

export function percent(share: number | null): string {
  return share === null || !Number.isFinite(share) ? NONE : `${(100 * share).toFixed(1)} %`;
}

/** A time in its greatest unit, as the controller says it. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`;
}

/** UTC, as the sentences of the controller have it; with the date on another day than `today`. */
export function clock(unix_s: number | null, today?: number): string {
  if (unix_s === null) return 'an unknown time';
  const [date, time] = new Date(unix_s * 1000).toISOString().split('T') as [string, string];
  const isToday = today !== undefined && new Date(today * 1000).toISOString().startsWith(date);
  return `${isToday ? '' : `${date}T`}${time.slice(0, 8)}Z`;
}

export function refused(of: Refusals): number {
  return of.cluster_overload + of.tenant_limit + of.burst_guard + of.quota + of.quota_repeated;
}

export function plural(count: number, noun: string): string {
  return `${WHOLE.format(count)} ${noun}${count === 1 ? '' : 's'}`;
}
