/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture of all ranks: their chunks as bars, and arrows for the slots that move. A bar has one
 * cell for each rank; a cell is filled once that rank's contribution is in the chunk. So a bar fills
 * up while a reduction goes on, and colour is never the only sign.
 */
'use strict';

/* Eight colours that people with any colour vision tell apart (Okabe and Ito, 2008), and a scale
 * from dark blue to yellow for more ranks than that. */
const FEW_COLOURS = ['#e69f00', '#56b4e9', '#009e73', '#cc79a7', '#0072b2', '#d55e00', '#b8a800',
                     '#8a8a8a'];
const SCALE = [[20, 46, 110], [66, 78, 107], [110, 109, 115], [155, 142, 117], [204, 178, 102],
               [250, 220, 60]];

const TITLE_ROOM = 14; /* above the box of a rank */
const ROWS_OF_A_SHEET = 1024;

function rankColour(rank, ranks) {
    if (ranks <= FEW_COLOURS.length)
        return FEW_COLOURS[rank];
    const at = rank / (ranks - 1) * (SCALE.length - 1);
    const low = Math.min(Math.floor(at), SCALE.length - 2);
    const mix = SCALE[low].map((from, i) => Math.round(from + (SCALE[low + 1][i] - from) * (at - low)));
    return `rgb(${mix.join(',')})`;
}

/* Sizes a canvas for the screen's pixels and returns its context, in CSS pixels. */
function prepareCanvas(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
}

/* The page's colours, which differ between light and dark. */
function readTheme() {
    const style = getComputedStyle(document.documentElement);
    const names = ['text', 'faint', 'line', 'empty', 'panel', 'wrong', 'accent'];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/* Draws the bars of values. The pattern of a value is painted once for each width and then copied,
 * since a picture of 64 ranks has thousands of bars. In a narrow bar every contribution is at least a
 * pixel wide, so that none is lost. */
class Bars {
    constructor(drawing, values) {
        this.drawing = drawing;
        this.values = values;
        this.colours = Array.from({length: drawing.ranks}, (_, rank) => rankColour(rank, drawing.ranks));
        this.sheets = new Map();
    }

    /* The place of a value's pattern: a row of a sheet that holds many patterns. */
    pattern(number, pixels) {
        const cells = this.drawing.reduces ? this.drawing.ranks : 1;
        const width = pixels < 2 * cells ? Math.max(1, pixels) : cells;
        if (!this.sheets.has(width))
            this.sheets.set(width, {rows: new Map(), sheet: undefined});
        const {rows} = this.sheets.get(width);
        if (!rows.has(number))
            rows.set(number, this.paintPattern(number, width, cells));
        return rows.get(number);
    }

    paintPattern(number, width, cells) {
        const entry = this.sheets.get(width);
        const row = entry.rows.size % ROWS_OF_A_SHEET;
        if (row === 0) {
            const canvas = document.createElement('canvas');
            canvas.width = width;
            canvas.height = ROWS_OF_A_SHEET;
            entry.sheet = canvas.getContext('2d');
        }
        for (const rank of this.values[number].ranks) {
            const left = Math.floor((cells > 1 ? rank : 0) / cells * width);
            entry.sheet.fillStyle = this.colours[rank];
            entry.sheet.fillRect(left, row, Math.max(1, Math.ceil(width / cells)), 1);
        }
        return {canvas: entry.sheet.canvas, row, width};
    }

    draw(context, number, box, theme, isDone) {
        const {x, y, width, height} = box;
        context.fillStyle = theme.empty;
        context.fillRect(x, y, width, height);
        if (number !== 0) {
            context.imageSmoothingEnabled = false;
            const pixels = Math.round(width * (window.devicePixelRatio || 1));
            const pattern = this.pattern(number, pixels);
            context.drawImage(pattern.canvas, 0, pattern.row, pattern.width, 1, x, y, width, height);
        }
        if (isDone && height >= 5) {
            context.strokeStyle = theme.text;
            context.lineWidth = height >= 9 ? 1.5 : 1;
            context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
        }
    }
}

/* Places the boxes of the ranks on a circle, or in one frame for each host. */
function placeRanks(drawing, width, height) {
    const n = drawing.ranks;
    const hosts = Math.max(...drawing.hosts) + 1;
    return hosts === 1 ? placeOnCircle(n, width, height) : placeInHosts(drawing, hosts, width, height);
}

/* Points at equal distances along an ellipse around (0, 0), the first one at the top, clockwise. */
function pointsOnEllipse(n, radiusX, radiusY) {
    const FINE = 2000;
    const at = (i) => {
        const angle = -Math.PI / 2 + 2 * Math.PI * i / FINE;
        return {x: radiusX * Math.cos(angle), y: radiusY * Math.sin(angle)};
    };
    const lengths = [0];
    for (let i = 1; i <= FINE; i++)
        lengths.push(lengths[i - 1] + Math.hypot(at(i).x - at(i - 1).x, at(i).y - at(i - 1).y));
    const points = [];
    for (let i = 0, k = 0; k < n; k++) {
        while (lengths[i] < lengths[FINE] * k / n)
            i++;
        points.push(at(i));
    }
    return points;
}

function placeOnCircle(n, width, height) {
    const size = Math.max(18, Math.min(116, (width + height) / (n + 7)));
    const boxWidth = n <= 8 ? size * 1.25 : size;
    const points = pointsOnEllipse(n, width / 2 - boxWidth / 2 - 8, height / 2 - size / 2 - 12);
    const boxes = points.map((point) => ({x: width / 2 + point.x - boxWidth / 2,
                                          y: height / 2 + point.y - size / 2 + 5,
                                          width: boxWidth, height: size}));
    return {boxes, frames: []};
}

/* A few small hosts stand above each other, with their ranks in a row: links between the hosts are
 * then upright lines. Other shapes are a grid of hosts with a grid of ranks in each. */
function placeInHosts(drawing, hosts, width, height) {
    const members = Array.from({length: hosts}, () => []);
    drawing.hosts.forEach((host, rank) => members[host].push(rank));
    const isStacked = hosts <= 4 && members.every((ranks) => ranks.length <= 8);
    const columns = isStacked ? 1 : Math.ceil(Math.sqrt(hosts * width / height * 0.8));
    const rows = Math.ceil(hosts / columns);
    const gap = hosts > 16 ? 16 : 44;
    const frameWidth = (width - gap * (columns - 1) - 4) / columns;
    const frameHeight = (height - gap * (rows - 1) - 4) / rows;
    const boxes = new Array(drawing.ranks), frames = [];
    members.forEach((ranks, host) => {
        const left = 2 + host % columns * (frameWidth + gap);
        const top = 2 + Math.floor(host / columns) * (frameHeight + gap);
        frames.push({x: left, y: top, width: frameWidth, height: frameHeight, title: `host ${host}`});
        const across = isStacked ? ranks.length
            : Math.ceil(Math.sqrt(ranks.length * frameWidth / frameHeight * 0.9));
        const down = Math.ceil(ranks.length / across);
        const cellWidth = (frameWidth - 8) / across, cellHeight = (frameHeight - 22) / down;
        const marginX = Math.min(50, cellWidth * 0.18), marginY = Math.min(40, cellHeight * 0.2);
        const boxWidth = Math.min(140, cellWidth - 2 * marginX);
        const boxHeight = Math.min(130, cellHeight - 2 * marginY);
        ranks.forEach((rank, i) => {
            boxes[rank] = {x: left + 4 + (i % across + 0.5) * cellWidth - boxWidth / 2,
                           y: top + 22 + (Math.floor(i / across) + 0.5) * cellHeight - boxHeight / 2,
                           width: boxWidth, height: boxHeight};
        });
    });
    return {boxes, frames};
}

const centre = (box) => ({x: box.x + box.width / 2, y: box.y + box.height / 2});

/* Where the line from the middle of a box towards a point leaves the box and the title above it. */
function edgeTowards(box, point, margin) {
    const middle = centre(box);
    const dx = point.x - middle.x, dy = point.y - middle.y;
    const room = box.height / 2 + margin + (dy < 0 ? TITLE_ROOM : 0);
    const share = Math.min((box.width / 2 + margin) / Math.max(Math.abs(dx), 1e-6),
                           room / Math.max(Math.abs(dy), 1e-6), 1);
    return {x: middle.x + dx * share, y: middle.y + dy * share};
}

class NetworkView {
    constructor(canvas, drawing, values, bars) {
        this.canvas = canvas;
        this.drawing = drawing;
        this.values = values;
        this.bars = bars;
        this.selected = 0;
    }

    resize(width, height) {
        this.width = width;
        this.height = height;
        this.context = prepareCanvas(this.canvas, width, height);
        this.layout = placeRanks(this.drawing, width, height);
    }

    rankAt(x, y) {
        return this.layout.boxes.findIndex((box) => x >= box.x && x <= box.x + box.width &&
            y >= box.y - 12 && y <= box.y + box.height);
    }

    /* @progress: how far the slots of this frame have come on their way, 0 to 1. */
    draw(state, progress) {
        const theme = readTheme();
        const context = this.context;
        context.clearRect(0, 0, this.width, this.height);
        for (const frame of this.layout.frames)
            this.drawHost(frame, theme);
        this.drawWaiting(state, theme);
        const slots = this.slotsOf(state.lastSteps());
        const isCrowded = slots.length > 160;
        const alpha = isCrowded ? Math.max(0.02, 20 / slots.length) : 1;
        for (const slot of slots)
            this.drawArrow(slot, theme, isCrowded, alpha);
        for (let rank = 0; rank < this.drawing.ranks; rank++)
            this.drawRank(rank, state, theme);
        if (!isCrowded)
            for (const slot of slots)
                this.drawToken(slot, progress, theme);
    }

    slotsOf(steps) {
        const slots = [];
        for (const step of steps)
            for (const output of step.outs)
                if (isSent(output))
                    slots.push({from: step.rank, to: output.index, step});
        return slots;
    }

    drawHost(frame, theme) {
        const context = this.context;
        context.strokeStyle = theme.line;
        context.lineWidth = 1;
        context.strokeRect(frame.x + 0.5, frame.y + 0.5, frame.width, frame.height);
        context.fillStyle = theme.faint;
        context.font = '12px system-ui, sans-serif';
        context.textAlign = 'left';
        context.textBaseline = 'alphabetic';
        context.fillText(frame.title, frame.x + 6, frame.y + 14);
    }

    /* Arrows are bent to their left. So the two directions of a pair lie beside each other, and an
     * arrow along a row of ranks passes the ranks between. */
    path(from, to) {
        const a = centre(this.layout.boxes[from]), b = centre(this.layout.boxes[to]);
        const isRow = this.layout.frames.length > 0 && a.y === b.y;
        const by = isRow ? 0.42 : 0.18;
        const bend = {x: (a.x + b.x) / 2 + by * (b.y - a.y), y: (a.y + b.y) / 2 - by * (b.x - a.x)};
        return {start: edgeTowards(this.layout.boxes[from], bend, 3), bend,
                end: edgeTowards(this.layout.boxes[to], bend, 5)};
    }

    trace({start, bend, end}) {
        this.context.beginPath();
        this.context.moveTo(start.x, start.y);
        this.context.quadraticCurveTo(bend.x, bend.y, end.x, end.y);
        this.context.stroke();
    }

    drawArrow(slot, theme, isCrowded, alpha) {
        const context = this.context;
        const path = this.path(slot.from, slot.to);
        const {x, y} = path.end;
        const isSelected = slot.from === this.selected || slot.to === this.selected;
        context.globalAlpha = isSelected && isCrowded ? 0.7 : alpha;
        context.strokeStyle = context.fillStyle = isSelected && isCrowded ? theme.accent : theme.text;
        context.lineWidth = isCrowded ? 1 : 1.6;
        this.trace(path);
        const angle = Math.atan2(y - path.bend.y, x - path.bend.x), tip = isCrowded ? 4 : 8;
        context.beginPath();
        context.moveTo(x, y);
        context.lineTo(x - tip * Math.cos(angle - 0.45), y - tip * Math.sin(angle - 0.45));
        context.lineTo(x - tip * Math.cos(angle + 0.45), y - tip * Math.sin(angle + 0.45));
        context.fill();
        context.globalAlpha = 1;
    }

    /* The value that travels, with the number of its chunk. */
    drawToken(slot, progress, theme) {
        const context = this.context;
        const {start, bend, end} = this.path(slot.from, slot.to);
        const room = Math.hypot(end.x - start.x, end.y - start.y);
        const most = Math.min(40, this.layout.boxes[slot.from].width);
        const width = Math.max(10, Math.min(most, room * 0.5)), height = width > 20 ? 12 : 6;
        if (room < 24)
            return;
        const at = 0.15 + 0.7 * progress;
        const along = (a, b, c) => a * (1 - at) * (1 - at) + 2 * b * at * (1 - at) + c * at * at;
        const x = along(start.x, bend.x, end.x) - width / 2;
        const y = along(start.y, bend.y, end.y) - height / 2;
        context.fillStyle = theme.panel;
        context.fillRect(x - 1.5, y - 1.5, width + 3, height + 3);
        this.bars.draw(context, slot.step.value, {x, y, width, height}, theme, false);
        context.strokeStyle = theme.text;
        context.lineWidth = 1;
        context.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
        if (width <= 20)
            return;
        context.font = 'bold 11px system-ui, sans-serif';
        context.textAlign = 'center';
        context.textBaseline = 'bottom';
        context.lineWidth = 3;
        context.strokeStyle = theme.panel;
        context.strokeText(`c${slot.step.chunk}`, x + width / 2, y - 2);
        context.fillStyle = theme.text;
        context.fillText(`c${slot.step.chunk}`, x + width / 2, y - 2);
    }

    /* Slots of earlier rounds that their receiver has not read. */
    drawWaiting(state, theme) {
        const context = this.context;
        if (state.waiting.size > 600)
            return;
        context.strokeStyle = theme.faint;
        context.lineWidth = 1;
        context.setLineDash([2, 4]);
        for (const fifo of state.waiting.keys()) {
            const [from, to] = fifo.split('/')[0].split('>').map(Number);
            this.trace(this.path(from, to));
        }
        context.setLineDash([]);
    }

    /* Draws the chunks that the rank works on at the left, and its output at the right. */
    drawRank(rank, state, theme) {
        const context = this.context;
        const {x, y, width, height} = this.layout.boxes[rank];
        const {finding} = this.drawing;
        const isWrong = finding !== null && finding.rank === rank;
        context.fillStyle = theme.panel;
        context.fillRect(x - 2, y - 2, width + 4, height + 4);
        context.strokeStyle = isWrong ? theme.wrong : rank === this.selected ? theme.accent : theme.line;
        context.lineWidth = isWrong ? 3 : rank === this.selected ? 2 : 1;
        context.strokeRect(x - 2.5, y - 2.5, width + 5, height + 5);
        this.drawTitle(rank, isWrong, theme);
        this.drawChunks(rank, state, {x, y, width, height}, theme);
    }

    drawTitle(rank, isWrong, theme) {
        const context = this.context;
        const {x, y, width} = this.layout.boxes[rank];
        const colour = rankColour(rank, this.drawing.ranks);
        const isSmall = width < 50;
        context.font = `${isSmall ? 10 : 12}px system-ui, sans-serif`;
        context.textAlign = 'left';
        context.textBaseline = 'bottom';
        context.fillStyle = colour;
        context.fillRect(x - 2, y - (isSmall ? 11 : 14), isSmall ? 6 : 10, isSmall ? 7 : 10);
        context.fillStyle = isWrong ? theme.wrong : theme.text;
        const mark = isWrong ? ' \u26a0' : '';
        const root = rank === this.drawing.root ? ' (root)' : '';
        context.fillText((isSmall ? `${rank}` : `rank ${rank}${root}`) + mark, x + (isSmall ? 6 : 11), y - 2);
        if (width < 110 || !this.hasOutput(rank))
            return;
        context.font = '10px system-ui, sans-serif';
        context.textAlign = 'right';
        context.fillStyle = theme.faint;
        context.fillText('output', x + width, y - 3);
    }

    hasOutput(rank) {
        return this.drawing.goal[rank].length > 0;
    }

    drawChunks(rank, state, box, theme) {
        const {parts} = this.drawing;
        const rowHeight = box.height / parts;
        const gap = rowHeight >= 6 ? 2 : rowHeight >= 3 ? 1 : 0;
        const label = rowHeight >= 11 && box.width > 60 ? 20 : 0;
        const column = (box.width - label - 3) / 2;
        for (let chunk = 0; chunk < parts; chunk++) {
            const top = Math.round(box.y + chunk * rowHeight + gap / 2);
            const end = Math.round(box.y + (chunk + 1) * rowHeight - gap / 2);
            const row = {y: top, width: column, height: Math.max(1, end - top)};
            if (label > 0)
                this.drawLabel(`c${chunk}`, box.x, top + row.height / 2, theme);
            this.bars.draw(this.context, state.now[rank][chunk], {...row, x: box.x + label}, theme, false);
            if (this.drawing.goal[rank][chunk] === undefined)
                continue;
            const number = state.out[rank][chunk];
            this.bars.draw(this.context, number, {...row, x: box.x + label + column + 3}, theme,
                           isDone(this.drawing, this.values, rank, chunk, number));
        }
    }

    drawLabel(text, x, y, theme) {
        this.context.font = '10px system-ui, sans-serif';
        this.context.textAlign = 'left';
        this.context.textBaseline = 'middle';
        this.context.fillStyle = theme.faint;
        this.context.fillText(text, x, y);
    }
}
