/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture of all ranks: their chunks as bars. A bar has one cell for each rank; a cell is filled
 * once that rank's contribution is in the chunk. So a bar fills up while a reduction goes on, and
 * colour is never the only sign.
 */
'use strict';

/* Eight colours that people with any colour vision tell apart (Okabe and Ito, 2008), and a scale
 * from dark blue to yellow for more ranks than that. */
const FEW_COLOURS = ['#e69f00', '#56b4e9', '#009e73', '#cc79a7', '#0072b2', '#d55e00', '#b8a800',
                     '#8a8a8a'];
const SCALE = [[48, 88, 176], [86, 104, 140], [120, 120, 124], [158, 145, 117], [204, 178, 102],
               [250, 220, 60]];

const TITLE_ROOM = 18; /* above the box of a rank */
const GAP = 14;        /* between boxes */
const LEAST_WIDTH = 62; /* of a box with its title */
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

class RankGrid {
    constructor(canvas, drawing, values, bars) {
        this.canvas = canvas;
        this.drawing = drawing;
        this.values = values;
        this.bars = bars;
        this.selected = 0;
    }

    /* Equal boxes: a line, a tree or a grid if there is room for one, else rows. */
    resize(width) {
        const {ranks, parts, places} = this.drawing;
        const height = Math.max(24, Math.max(2, Math.min(16, Math.floor(160 / parts))) * parts);
        const placed = places === null ? 0 : Math.max(...places.map(([x]) => x)) + 1;
        this.isPlaced = placed > 0 && (width - GAP) / placed - GAP >= LEAST_WIDTH;
        const columns = this.isPlaced ? placed
            : Math.max(1, Math.min(ranks, Math.floor((width - GAP) / ((ranks <= 8 ? 160 : 110) + GAP))));
        const boxWidth = Math.min(260, (width - GAP) / columns - GAP);
        const gap = this.isPlaced ? 2 * GAP : GAP; /* links are visible between levels */
        this.boxes = Array.from({length: ranks}, (_, rank) => {
            const [x, y] = this.isPlaced ? places[rank] : [rank % columns, Math.floor(rank / columns)];
            return {x: GAP / 2 + x * (boxWidth + GAP), y: TITLE_ROOM + y * (height + TITLE_ROOM + gap),
                    width: boxWidth, height};
        });
        this.width = width;
        this.height = Math.max(...this.boxes.map((box) => box.y)) + height + GAP;
        this.context = prepareCanvas(this.canvas, width, this.height);
    }

    rankAt(x, y) {
        return this.boxes.findIndex((box) => x >= box.x && x <= box.x + box.width &&
            y >= box.y - TITLE_ROOM && y <= box.y + box.height);
    }

    draw(state) {
        const theme = readTheme();
        this.context.clearRect(0, 0, this.width, this.height);
        if (this.isPlaced)
            this.drawLinks(theme);
        for (let rank = 0; rank < this.drawing.ranks; rank++)
            this.drawRank(rank, state, theme);
    }

    /* Lines behind the boxes, between ranks of which one sends to the other. */
    drawLinks(theme) {
        const middle = ({x, y, width, height}) => [x + width / 2, y + height / 2];
        this.context.strokeStyle = theme.line;
        this.context.lineWidth = 2;
        this.context.beginPath();
        this.drawing.programs.forEach((program, rank) => {
            const text = program.workers.map((worker) => worker.text.join(' ')).join(' ');
            for (const [, peer] of text.matchAll(/(?:to|into) (\d+)/g)) {
                this.context.moveTo(...middle(this.boxes[rank]));
                this.context.lineTo(...middle(this.boxes[Number(peer)]));
            }
        });
        this.context.stroke();
    }

    drawRank(rank, state, theme) {
        const context = this.context;
        const {x, y, width, height} = this.boxes[rank];
        const {finding} = this.drawing;
        const isWrong = finding !== null && finding.rank === rank;
        context.fillStyle = theme.panel;
        context.fillRect(x - 2, y - 2, width + 4, height + 4);
        context.strokeStyle = isWrong ? theme.wrong : rank === this.selected ? theme.accent : theme.line;
        context.lineWidth = isWrong ? 3 : rank === this.selected ? 2 : 1;
        context.strokeRect(x - 2.5, y - 2.5, width + 5, height + 5);
        this.drawTitle(rank, isWrong, theme);
        this.drawChunks(rank, state, theme);
    }

    drawTitle(rank, isWrong, theme) {
        const context = this.context;
        const {x, y, width} = this.boxes[rank];
        const colour = rankColour(rank, this.drawing.ranks);
        context.font = '12px system-ui, sans-serif';
        context.textAlign = 'left';
        context.textBaseline = 'bottom';
        context.fillStyle = colour;
        context.fillRect(x - 2, y - 14, 10, 10);
        context.fillStyle = isWrong ? theme.wrong : theme.text;
        const mark = isWrong ? ' \u26a0' : '';
        const root = rank === this.drawing.root ? ' (root)' : '';
        const host = Math.max(...this.drawing.hosts) > 0 ? `, host ${this.drawing.hosts[rank]}` : '';
        context.fillText(`rank ${rank}${root}${host}${mark}`, x + 11, y - 2);
        if (width < 160 || this.drawing.goal[rank].length === 0)
            return;
        context.font = '10px system-ui, sans-serif';
        context.textAlign = 'right';
        context.fillStyle = theme.faint;
        context.fillText('output', x + width, y - 3);
    }

    /* The chunks that the rank works on at the left, and its output at the right. */
    drawChunks(rank, state, theme) {
        const {context, boxes} = this;
        const {x, y, width, height} = boxes[rank];
        const {parts, goal} = this.drawing;
        const rowHeight = height / parts;
        const gap = rowHeight >= 6 ? 2 : rowHeight >= 3 ? 1 : 0;
        const label = rowHeight >= 11 ? 20 : 0;
        const column = (width - label - 3) / 2;
        for (let chunk = 0; chunk < parts; chunk++) {
            const top = Math.round(y + chunk * rowHeight + gap / 2);
            const end = Math.round(y + (chunk + 1) * rowHeight - gap / 2);
            const row = {y: top, width: column, height: Math.max(1, end - top)};
            if (label > 0) {
                context.font = '10px system-ui, sans-serif';
                context.textAlign = 'left';
                context.textBaseline = 'middle';
                context.fillStyle = theme.faint;
                context.fillText(`c${chunk}`, x, top + row.height / 2);
            }
            this.bars.draw(context, state.now[rank][chunk], {...row, x: x + label}, theme, false);
            if (goal[rank][chunk] === undefined)
                continue;
            const number = state.out[rank][chunk];
            this.bars.draw(context, number, {...row, x: x + label + column + 3}, theme,
                           isDone(this.drawing, this.values, rank, chunk, number));
        }
    }
}
