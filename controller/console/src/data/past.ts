// The past of the buckets that were shown: ten minutes from the controller, and each second since.

import type { BucketRow, Frame, Point } from './wire';

const POINTS_MAX = 600;
const BUCKETS_MAX = 200;

export class Past {
  #points = new Map<string, Point[]>();

  add({ fleet, view }: Frame): void {
    const rows = view.bucket === null ? view.buckets.rows : [...view.buckets.rows, view.bucket.row];
    const names = new Set(rows.map((row) => row.name));
    for (const row of new Map(rows.map((row) => [row.name, row])).values()) this.#addRow(row, fleet.at_s);
    for (const name of this.#points.keys()) {
      if (this.#points.size <= BUCKETS_MAX) break;
      if (!names.has(name)) this.#points.delete(name);
    }
  }

  of(name: string): Point[] {
    return this.#points.get(name) ?? [];
  }

  clear(): void {
    this.#points.clear();
  }

  #addRow(row: BucketRow, at: number): void {
    let points = this.of(row.name);
    // Seconds that this page has seen are finer than the history, which fills what lies before and gaps.
    if (row.history !== undefined) {
      const seen = new Set(points.map(([time]) => Math.floor(time / 10)));
      points = [...points, ...row.history.filter(([time]) => !seen.has(Math.floor(time / 10)))];
      points.sort(([one], [other]) => one - other);
    }
    const last = points.at(-1);
    if (last === undefined || last[0] < at) points = [...points, [at, row.offered_rps, row.admitted_rps, row.limit_rps]];
    this.#points.set(row.name, points.filter(([time]) => time > at - POINTS_MAX));
  }
}
