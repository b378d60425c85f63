// The chart of one bucket, with a table of the same values.

import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { clock, rate } from '../data/format';
import type { Point } from '../data/wire';

const HEIGHT = 180;
const TABLE_MAX = 60;

export function Chart({ name, points, at }: { name: string; points: Point[]; at: number }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const columns = (): uPlot.AlignedData => [
    points.map(([time]) => time),
    points.map(([, offered]) => offered),
    points.map(([, , admitted]) => admitted),
    points.map(([, , , limit]) => limit),
  ];
  useEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const draw = () => {
      plot.current?.destroy();
      if (place.current !== null) plot.current = new uPlot(options(place.current), columns(), place.current);
    };
    draw();
    dark.addEventListener('change', draw);
    const sizes = new ResizeObserver(([entry]) => {
      if (entry !== undefined) plot.current?.setSize({ width: entry.contentRect.width, height: HEIGHT });
    });
    if (place.current !== null) sizes.observe(place.current);
    return () => {
      dark.removeEventListener('change', draw);
      sizes.disconnect();
      plot.current?.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(columns()), [points]);

  const last = points.at(-1);
  const spoken = last === undefined ? 'no values yet' : `now ${rate(last[1])} offered, ${rate(last[2])} admitted, limit ${rate(last[3])}, each a second`;
  return (
    <figure>
      <ul class="legend" aria-hidden="true">
        <li class="offered">offered/s</li>
        <li class="admitted">admitted/s</li>
        <li class="limit">limit/s</li>
      </ul>
      <div ref={place} role="img" aria-label={`Ten minutes of ${name}: ${spoken}`} />
      <details>
        <summary>The same as a table</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label={`Values of ${name}`}>
          <table>
            <thead>
              <tr><th scope="col">Time</th><th scope="col" class="number">Offered/s</th><th scope="col" class="number">Admitted/s</th><th scope="col" class="number">Limit/s</th></tr>
            </thead>
            <tbody>
              {points.slice(-TABLE_MAX).reverse().map(([time, offered, admitted, limit]) => (
                <tr key={time}>
                  <th scope="row">{clock(time, at)}</th>
                  <td class="number">{rate(offered)}</td><td class="number">{rate(admitted)}</td><td class="number">{rate(limit)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

function options(place: HTMLElement): uPlot.Options {
  const style = getComputedStyle(place);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const font = `12px ${style.fontFamily}`;
  const axis = { stroke: colour('--muted'), font, grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  return {
    width: place.clientWidth || 400,
    height: HEIGHT,
    cursor: { show: false },
    legend: { show: false },
    tzDate: (time) => uPlot.tzDate(new Date(time * 1000), 'UTC'),
    scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [
      { ...axis, values: (_plot, times, _axis, _space, step) => times.map((time) => clock(time, time).slice(0, step < 60 ? 8 : 5)), space: 70, size: 28 },
      { ...axis, values: (_plot, values) => values.map((value) => rate(value)), size: 56 },
    ],
    series: [
      {},
      { label: 'offered', stroke: colour('--offered'), width: 1.5, points: { show: false } },
      { label: 'admitted', stroke: colour('--admitted'), width: 2, fill: colour('--area'), points: { show: false } },
      { label: 'limit', stroke: colour('--limit'), width: 1.5, dash: [5, 4], points: { show: false } },
    ],
  };
}
