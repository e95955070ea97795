/* SPDX-License-Identifier: Apache-2.0
 *
 * The chart under the picture. It has a lane for each worker and, if the x axis is time, a lane for
 * each link, with a bar for each step or slot. The chart is painted once; the cursor and the marks
 * are elements over it.
 */
'use strict';

const MOST_LINK_LANES = 192; /* more do not fit on a canvas; then only one rank's links are shown */
const MOST_WIDTH = 16000;    /* of a canvas, in CSS pixels */

/* A lane for each worker of each rank, in order, and the number of each lane. */
function listWorkerLanes(drawing) {
    const lanes = [], numbers = new Map();
    drawing.programs.forEach((program, rank) => program.workers.forEach((_, worker) => {
        numbers.set(`${rank}.${worker}`, lanes.length);
        const several = program.workers.length > 1;
        lanes.push({label: worker === 0 ? `rank ${rank}${several ? ' w0' : ''}` : `w${worker}`, rank});
    }));
    return {lanes, numbers};
}

/* Steps by round. Steps of one worker that run in the same round share its cell. A step that never
 * runs stands behind the last round. */
function chartOfRounds(drawing, steps) {
    const {lanes, numbers} = listWorkerLanes(drawing);
    const cells = new Map();
    const items = [];
    const stuck = new Set();
    for (const step of steps) {
        const lane = numbers.get(`${step.rank}.${step.worker}`);
        if (step.round < 0) {
            if (!stuck.has(lane))
                items.push({lane, from: drawing.rounds, to: drawing.rounds + 1, step, neverRuns: true});
            stuck.add(lane);
            continue;
        }
        const name = `${lane}.${step.round}`;
        if (!cells.has(name))
            cells.set(name, []);
        cells.get(name).push({lane, step});
    }
    for (const cell of cells.values())
        cell.forEach((item, i) => items.push({...item, from: item.step.round + i / cell.length,
                                              to: item.step.round + (i + 1) / cell.length}));
    const span = drawing.rounds + (stuck.size > 0 ? 1 : 0);
    return {lanes, items, span, least: 9, most: 72, isTime: false};
}

/* Steps and slots by time. @rank: if there are too many links, only the links of this rank are
 * shown. */
function chartOfTimes(drawing, events, rank) {
    const {lanes, numbers} = listWorkerLanes(drawing);
    const links = new Map();
    const items = events.map((event) => ({
        lane: numbers.get(`${event.step.rank}.${event.step.worker}`),
        from: event.start, to: event.end, step: event.step, tile: event.tile}));
    const slots = [];
    for (const event of events)
        for (const slot of event.slots) {
            const name = `${event.step.rank} \u2192 ${slot.to}`;
            slots.push({name, from: event.start, to: slot.arrival, step: event.step, tile: event.tile,
                        ranks: [event.step.rank, slot.to], target: slot.to});
        }
    const names = new Set(slots.map((slot) => slot.name));
    const shown = names.size <= MOST_LINK_LANES ? slots
        : slots.filter((slot) => slot.ranks.includes(rank));
    const byRanks = (a, b) => {
        const [aFrom, , aTo] = a.split(' '), [bFrom, , bTo] = b.split(' ');
        return aFrom - bFrom || aTo - bTo;
    };
    for (const name of [...new Set(shown.map((slot) => slot.name))].sort(byRanks)) {
        links.set(name, lanes.length);
        lanes.push({label: name, rank: Number(name.split(' ')[0])});
    }
    for (const slot of shown)
        items.push({...slot, lane: links.get(slot.name), isSlot: true});
    return {lanes, items, span: drawing.times.time_ns, least: 0, most: Infinity, isTime: true};
}

class LaneChart {
    constructor(elements, drawing, values, bars) {
        Object.assign(this, elements); /* scroller, canvas, labels, cursor, mark */
        this.drawing = drawing;
        this.values = values;
        this.bars = bars;
        this.zoom = 1;
    }

    show(chart) {
        this.chart = chart;
        const n = chart.lanes.length;
        this.laneHeight = n <= 12 ? 24 : n <= 40 ? 18 : 13;
        this.paint();
    }

    paint() {
        const theme = readTheme();
        const {lanes, items} = this.chart;
        const height = lanes.length * this.laneHeight + 22;
        const labels = prepareCanvas(this.labels, 96, height);
        /* Pixels for a unit of the x axis. All of it fits if units are then wide enough to see. */
        const room = this.scroller.clientWidth - this.labels.clientWidth - 12;
        const fit = Math.max(this.chart.least, Math.min(this.chart.most, room / this.chart.span));
        this.scale = Math.min(fit * this.zoom, MOST_WIDTH / this.chart.span);
        const width = Math.max(60, Math.ceil(this.chart.span * this.scale) + 2);
        this.context = prepareCanvas(this.canvas, width, height);
        this.cursor.style.height = `${height}px`;
        this.paintLanes(labels, width, theme);
        this.paintAxis(width, theme);
        for (const item of items)
            this.paintItem(item, theme);
    }

    paintLanes(labels, width, theme) {
        labels.font = '11px system-ui, sans-serif';
        labels.textBaseline = 'middle';
        labels.textAlign = 'right';
        this.chart.lanes.forEach((lane, i) => {
            const y = 20 + i * this.laneHeight;
            labels.fillStyle = lane.label.startsWith('w') ? theme.faint : theme.text;
            labels.fillText(lane.label, 90, y + this.laneHeight / 2);
            this.context.strokeStyle = theme.line;
            this.context.lineWidth = lane.label.startsWith('w') ? 0.25 : 0.6;
            this.context.beginPath();
            this.context.moveTo(0, y + 0.5);
            this.context.lineTo(width, y + 0.5);
            this.context.stroke();
        });
    }

    paintAxis(width, theme) {
        const context = this.context;
        const least = (this.chart.isTime ? 70 : 26) / this.scale; /* for a label */
        const power = 10 ** Math.floor(Math.log10(least));
        const wide = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= least);
        const unit = this.chart.isTime ? wide : Math.max(1, Math.ceil(wide));
        context.fillStyle = theme.faint;
        context.font = '10px system-ui, sans-serif';
        context.textBaseline = 'middle';
        context.textAlign = 'left';
        for (let at = 0; at < this.chart.span; at += unit) {
            const label = this.chart.isTime ? describeTime(at) : String(at);
            context.fillText(at < this.drawing.rounds || this.chart.isTime ? label : 'never',
                             at * this.scale + 3, 10);
        }
    }

    boxOf(item) {
        const x = item.from * this.scale + 1;
        return {x, y: 20 + item.lane * this.laneHeight + 2,
                width: Math.max(1, item.to * this.scale - x - 1), height: this.laneHeight - 4};
    }

    isWrong(step) {
        const {finding} = this.drawing;
        return finding !== null && finding.worker >= 0 && step.rank === finding.rank &&
            step.worker === finding.worker && step.index === finding.step;
    }

    paintItem(item, theme) {
        const context = this.context;
        const box = this.boxOf(item);
        if (item.neverRuns)
            this.paintHatch(box, theme);
        else
            this.bars.draw(context, item.step.value, box, theme, false);
        if (item.isSlot || this.chart.isTime) {
            context.strokeStyle = theme.faint;
            context.lineWidth = 0.5;
            context.strokeRect(box.x, box.y, box.width, box.height);
        }
        const label = `c${item.step.chunk}`;
        if (box.width >= 22 && box.height >= 9)
            this.paintLabel(item.step.isFinal ? `${label}!` : label, box, theme);
        if (this.isWrong(item.step) && !item.isSlot)
            this.paintWrong(box, theme);
    }

    paintLabel(text, box, theme) {
        const context = this.context;
        context.font = 'bold 10px system-ui, sans-serif';
        context.textAlign = 'center';
        context.textBaseline = 'middle';
        context.lineWidth = 3;
        context.lineJoin = 'round';
        context.strokeStyle = theme.panel;
        context.strokeText(text, box.x + box.width / 2, box.y + box.height / 2 + 0.5);
        context.fillStyle = theme.text;
        context.fillText(text, box.x + box.width / 2, box.y + box.height / 2 + 0.5);
    }

    paintHatch(box, theme) {
        const context = this.context;
        context.strokeStyle = theme.faint;
        context.lineWidth = 1;
        context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
        context.save();
        context.beginPath();
        context.rect(box.x, box.y, box.width, box.height);
        context.clip();
        context.beginPath();
        for (let x = -box.height; x < box.width; x += 6) {
            context.moveTo(box.x + x, box.y + box.height);
            context.lineTo(box.x + x + box.height, box.y);
        }
        context.stroke();
        context.restore();
    }

    paintWrong(box, theme) {
        const context = this.context;
        context.strokeStyle = theme.wrong;
        context.lineWidth = 3;
        context.strokeRect(box.x - 1, box.y - 1, Math.max(box.width, 8) + 2, box.height + 2);
        context.fillStyle = theme.wrong;
        context.font = 'bold 13px system-ui, sans-serif';
        context.textAlign = 'left';
        context.textBaseline = 'middle';
        context.fillText('\u26a0', box.x + Math.max(box.width, 8) + 4, box.y + box.height / 2);
    }

    /* The item at a point of the canvas, in CSS pixels, or undefined. */
    itemAt(x, y) {
        return this.chart.items.find((item) => {
            const box = this.boxOf(item);
            return x >= box.x - 1 && x <= box.x + Math.max(box.width, 4) && y >= box.y &&
                y <= box.y + box.height;
        });
    }

    markItem(item) {
        this.mark.hidden = item === undefined;
        if (item === undefined)
            return;
        const box = this.boxOf(item);
        this.mark.style.left = `${this.canvas.offsetLeft + box.x - 2}px`;
        this.mark.style.top = `${box.y - 2}px`;
        this.mark.style.width = `${box.width}px`;
        this.mark.style.height = `${box.height}px`;
    }

    /* @at: on the x axis; keeps the cursor in view. */
    moveCursor(at) {
        const left = this.canvas.offsetLeft + at * this.scale;
        this.cursor.style.left = `${left}px`;
        const {scrollLeft, clientWidth} = this.scroller;
        if (left < scrollLeft + 110 || left > scrollLeft + clientWidth - 30)
            this.scroller.scrollLeft = left - clientWidth / 2;
    }
}
