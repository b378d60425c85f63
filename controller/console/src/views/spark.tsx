// A small chart in a row: what was offered, what was admitted, and the limit. The row has the numbers.

import type { Point } from '../data/wire';

const [WIDTH, HEIGHT] = [120, 28];
const SPAN_S = 600;

export function Spark({ points }: { points: Point[] }) {
  const last = points.at(-1);
  if (last === undefined) return null;
  const top = Math.max(1, ...points.map(([, offered, , limit]) => Math.max(offered, limit ?? 0))) * 1.05;
  const x = (time: number) => WIDTH * (1 - (last[0] - time) / SPAN_S);
  const y = (value: number) => HEIGHT * (1 - value / top);
  const line = (value: (point: Point) => number | null) => {
    let pen = 'M';
    return points
      .map((point) => {
        const at = value(point);
        if (at === null) {
          pen = 'M';
          return '';
        }
        const text = `${pen}${x(point[0]).toFixed(1)} ${y(at).toFixed(1)}`;
        pen = 'L';
        return text;
      })
      .join('');
  };
  const admitted = line(([, , value]) => value);
  const first = points[0] ?? last;
  return (
    <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path class="area" d={`${admitted}L${x(last[0])} ${HEIGHT}L${x(first[0]).toFixed(1)} ${HEIGHT}Z`} />
      <path class="offered" d={line(([, value]) => value)} />
      <path class="admitted" d={admitted} />
      <path class="limit" d={line(([, , , value]) => value)} />
    </svg>
  );
}
