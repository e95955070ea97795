/* SPDX-License-Identifier: Apache-2.0
 *
 * The page: buttons, keys and text around the picture and the chart.
 */
'use strict';

const MOST_LINES = 40;       /* steps in words that are listed at once */
const MS_OF_A_ROUND = 1100;  /* at normal speed */
const MS_OF_A_CALL = 12000;  /* of all of the predicted time, at normal speed */

class Page {
    constructor(drawing) {
        const find = (id) => document.getElementById(id);
        this.drawing = drawing;
        this.find = find;
        this.steps = listSteps(drawing);
        this.values = listValues(drawing);
        this.events = listEvents(drawing, this.steps);
        this.bars = new Bars(drawing, this.values);
        this.ranks = new RankGrid(find('ranks'), drawing, this.values, this.bars);
        this.chart = new LaneChart({scroller: find('scroller'), canvas: find('tracks'),
                                    labels: find('labels'), cursor: find('cursor'),
                                    mark: find('mark')}, drawing, this.values, this.bars);
        this.isPlaying = false;
        if (drawing.finding !== null && drawing.finding.rank >= 0)
            this.ranks.selected = drawing.finding.rank;
        this.writeHeader();
        this.writeLegend();
        this.connect();
        this.ranks.resize(find('ranks').parentElement.clientWidth);
        this.showRounds();
    }

    /* ---- the parts that do not change ---------------------------------------------------- */

    writeHeader() {
        const {finding} = this.drawing;
        const verdict = this.find('verdict');
        verdict.classList.toggle('is-wrong', finding !== null);
        verdict.textContent = finding === null
            ? `\u2713 Proved: every output is right, no deadlock with ${this.drawing.min_depth} ` +
              `slot${this.drawing.min_depth === 1 ? '' : 's'} in a FIFO`
            : `\u26a0 ${describeFinding(finding)}`;
    }

    writeLegend() {
        const {ranks, reduces} = this.drawing;
        const list = this.find('legend-ranks');
        const shown = ranks <= 16 ? [...Array(ranks).keys()]
            : [0, Math.floor(ranks / 4), Math.floor(ranks / 2), Math.floor(3 * ranks / 4), ranks - 1];
        for (const rank of shown) {
            const entry = document.createElement('span');
            const colour = document.createElement('i');
            colour.style.background = rankColour(rank, ranks);
            entry.append(colour, `rank ${rank}`);
            list.append(entry);
        }
        const bars = reduces
            ? `A bar is a chunk. It has one cell for each rank, from left to right, and a cell is ` +
              `filled once the contribution of that rank is in the sum.`
            : 'A bar is a chunk, in the colour of the rank whose input it holds.';
        this.find('legend-text').textContent = `${bars} Each rank has two columns: left what it ` +
            'works on, right its output. A frame around a bar: this output is complete.';
    }

    connect() {
        const click = (id, action) => this.find(id).addEventListener('click', action);
        click('first', () => this.goTo(0));
        click('back', () => this.goTo(this.state.position - 1));
        click('forward', () => this.goTo(this.state.position + 1));
        click('last', () => this.goTo(this.frames.length));
        click('play', () => this.togglePlay());
        click('view-rounds', () => this.showRounds());
        click('view-times', () => this.showTimes());
        click('zoom-in', () => this.zoomBy(1.6));
        click('zoom-out', () => this.zoomBy(1 / 1.6));
        this.find('scrubber').addEventListener('input', (event) => this.goTo(Number(event.target.value)));
        this.find('text-state').addEventListener('toggle', () => this.writeTable());
        document.addEventListener('keydown', (event) => this.onKey(event));
        window.addEventListener('resize', () => this.resize());
        window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.resize());
        this.find('ranks').addEventListener('pointermove', (event) => this.onPointRank(event));
        const tracks = this.find('tracks');
        tracks.addEventListener('pointermove', (event) => this.onPointStep(event));
        tracks.addEventListener('pointerleave', () => this.pointAt(undefined));
        tracks.addEventListener('click', (event) => this.onClickStep(event));
        const missing = this.drawing.times === null;
        this.find('view-times').disabled = missing;
        if (missing)
            this.find('view-times').title = this.drawing.times_missing;
    }

    /* ---- views --------------------------------------------------------------------------- */

    showRounds() {
        this.isTime = false;
        this.setFrames(framesByRound(this.drawing, this.steps));
        this.chart.show(chartOfRounds(this.drawing, this.steps));
        this.find('chart-text').textContent = 'x: rounds. In a round every worker that can run does ' +
            'its next step. One lane for each worker of each rank.';
        this.goTo(0);
    }

    showTimes() {
        const {times} = this.drawing;
        if (times === null)
            return;
        this.isTime = true;
        this.setFrames(framesByTime(this.events));
        this.chart.show(chartOfTimes(this.drawing, this.events, this.ranks.selected));
        const what = `time of ${describeBytes(times.bytes)}` +
            `${this.drawing.reduces ? '' : ' of one block or vector'}, `;
        const how = `${times.channels} channel${times.channels === 1 ? '' : 's'} (one is shown), ` +
            `${times.tiles} tile${times.tiles === 1 ? '' : 's'} of ${describeBytes(times.tile_bytes)}`;
        this.find('chart-text').textContent = (times.measured
            ? `x: measured ${what}${how}: ${describeTime(times.time_ns)}. `
            : `x: predicted ${what}${times.proto}, ${how}, constants "${times.cost}": ` +
              `${describeTime(times.time_ns)}, limited by ${times.bottleneck}. `) +
            'Below the workers: one lane for each link, from the start of a send to the arrival.' +
            (times.tiles > 1 ? ' The picture above follows the first tile.' : '');
        this.goTo(0);
    }

    setFrames(frames) {
        this.stop();
        this.frames = frames;
        this.state = new State(this.drawing, frames);
        this.find('scrubber').max = frames.length;
        this.find('view-rounds').setAttribute('aria-pressed', String(!this.isTime));
        this.find('view-times').setAttribute('aria-pressed', String(this.isTime));
    }

    resize() {
        this.ranks.resize(this.find('ranks').parentElement.clientWidth);
        this.chart.paint();
        this.show();
    }

    zoomBy(factor) {
        this.chart.zoom = Math.max(1, Math.min(200, this.chart.zoom * factor));
        this.chart.paint();
        this.show();
    }

    /* ---- moving -------------------------------------------------------------------------- */

    goTo(position) {
        this.state.seek(position);
        this.show();
    }

    togglePlay() {
        if (this.isPlaying) {
            this.stop();
            return;
        }
        if (this.state.position === this.frames.length)
            this.goTo(0);
        this.isPlaying = true;
        this.find('play').textContent = '\u23f8 Pause';
        this.find('play').setAttribute('aria-label', 'Pause');
        this.nextFrame();
    }

    stop() {
        clearTimeout(this.timer);
        this.isPlaying = false;
        this.find('play').textContent = '\u25b6 Play';
        this.find('play').setAttribute('aria-label', 'Play');
    }

    /* How long the frame with this number stays on the screen. */
    millisecondsOf(position) {
        const speed = Number(this.find('speed').value);
        if (!this.isTime)
            return MS_OF_A_ROUND / speed;
        const from = position === 0 ? 0 : this.frames[position - 1].at;
        return (this.frames[position].at - from) / this.drawing.times.time_ns * MS_OF_A_CALL / speed;
    }

    nextFrame() {
        if (!this.isPlaying)
            return;
        if (this.state.position === this.frames.length) {
            this.stop();
            this.goTo(this.frames.length);
            return;
        }
        const duration = this.millisecondsOf(this.state.position);
        this.goTo(this.state.position + 1);
        this.timer = setTimeout(() => this.nextFrame(), duration);
    }

    /* ---- the parts that change ----------------------------------------------------------- */

    show() {
        const {position} = this.state;
        const {length} = this.frames;
        this.ranks.draw(this.state);
        this.find('scrubber').value = position;
        this.find('first').disabled = this.find('back').disabled = position === 0;
        this.find('last').disabled = this.find('forward').disabled = position === length;
        const at = position === 0 ? 0 : this.frames[position - 1].at;
        this.find('position').textContent = this.isTime ? describeTime(at)
            : position === 0 ? `start, ${length} rounds` : `round ${position - 1} of 0 to ${length - 1}`;
        this.find('scrubber').setAttribute('aria-valuetext', this.find('position').textContent);
        this.chart.moveCursor(this.isTime ? at : position);
        const {done, all} = countDone(this.drawing, this.values, this.state);
        const isEnd = position === length;
        this.find('moment').textContent = position === 0 ? 'Before the first step'
            : (this.isTime ? `At ${describeTime(at)}` : `Round ${position - 1}`) + (isEnd ? ', the last' : '');
        this.find('progress').textContent = `${done} of ${all} output chunks are complete.` +
            (isEnd && this.drawing.stuck ? ' The rest never comes: no further step can run.' : '');
        this.writeWords();
        this.writeTable();
    }

    writeWords() {
        const list = document.createElement('ul');
        const steps = this.state.lastSteps();
        const isEnd = this.state.position === this.frames.length;
        const stuck = isEnd && this.drawing.stuck
            ? this.chart.chart.items.filter((item) => item.neverRuns).map((item) => item.step) : [];
        for (const step of steps.slice(0, MOST_LINES))
            list.append(this.lineOf(describeStep(step), step));
        for (const step of stuck.slice(0, MOST_LINES))
            list.append(this.lineOf(`Rank ${step.rank} ${describeWait(step, this.state)}.`, step));
        const more = steps.length - MOST_LINES;
        if (more > 0)
            list.append(this.lineOf(`and ${more} more steps`));
        if (this.state.position === 0)
            list.append(this.lineOf('Every rank has its own input. Press play, or the right arrow.'));
        this.find('words').replaceChildren(list);
    }

    lineOf(text, step) {
        const line = document.createElement('li');
        line.textContent = text;
        if (step !== undefined && this.chart.isWrong(step)) {
            line.classList.add('is-wrong');
            line.textContent = `\u26a0 ${text} Here: ${this.drawing.finding.text}`;
        }
        return line;
    }

    /* Writes the state as text while its part of the page is open. */
    writeTable() {
        if (!this.find('text-state').open)
            return;
        const table = document.createElement('table');
        const addRow = (cells, kind) => {
            const row = table.insertRow();
            for (const text of cells) {
                const cell = document.createElement(kind);
                cell.textContent = text;
                row.append(cell);
            }
        };
        addRow(['rank', 'chunk of output', 'holds the inputs of ranks', 'complete'], 'th');
        this.state.out.forEach((chunks, rank) => chunks.forEach((number, chunk) => {
            if (this.drawing.goal[rank][chunk] === undefined)
                return;
            const value = this.values[number];
            const isWhole = isDone(this.drawing, this.values, rank, chunk, number);
            addRow([rank, chunk, describeRanks(value.ranks) || '-', isWhole ? 'yes' : 'no'], 'td');
        }));
        this.find('text-table').replaceChildren(table);
    }

    /* ---- keys and pointer ---------------------------------------------------------------- */

    onKey(event) {
        if (event.target.tagName === 'SELECT' || event.ctrlKey || event.metaKey || event.altKey)
            return;
        const actions = {
            ArrowRight: () => this.goTo(this.state.position + 1),
            ArrowLeft: () => this.goTo(this.state.position - 1),
            Home: () => this.goTo(0),
            End: () => this.goTo(this.frames.length),
            ' ': () => this.togglePlay(),
            t: () => (this.isTime ? this.showRounds() : this.showTimes()),
            '+': () => this.zoomBy(1.6),
            '-': () => this.zoomBy(1 / 1.6),
        };
        const action = actions[event.key];
        if (action === undefined || (event.key === ' ' && event.target.tagName === 'SUMMARY'))
            return;
        event.preventDefault();
        action();
    }

    onPointRank(event) {
        const rank = this.ranks.rankAt(event.offsetX, event.offsetY);
        if (rank < 0 || rank === this.ranks.selected)
            return;
        this.ranks.selected = rank;
        this.ranks.draw(this.state);
    }

    onPointStep(event) {
        this.pointAt(this.chart.itemAt(event.offsetX, event.offsetY));
    }

    pointAt(item) {
        this.chart.markItem(item);
        if (item === undefined)
            return;
        const {step} = item;
        const line = document.createElement('code');
        line.textContent = `rank ${step.rank}, worker ${step.worker}, step ${step.index}: ${step.text}`;
        const when = !this.isTime ? '' : item.isSlot
            ? ` The slot to rank ${item.target} leaves from ${describeTime(item.from)} on and arrives at ` +
              `${describeTime(item.to)}${item.tile > 0 ? `, tile ${item.tile}` : ''}.`
            : ` From ${describeTime(item.from)} to ${describeTime(item.to)}, tile ${item.tile}.`;
        const wrong = this.chart.isWrong(step) ? ` \u26a0 ${this.drawing.finding.text}` : '';
        this.find('hover').replaceChildren(
            `${describeStep(step)} ${describeResult(this.drawing, this.values, step)}${when}${wrong} `,
            document.createElement('br'), line);
    }

    onClickStep(event) {
        const item = this.chart.itemAt(event.offsetX, event.offsetY);
        if (item === undefined)
            return;
        this.ranks.selected = item.step.rank;
        const index = this.frames.findIndex((frame) => frame.steps.includes(item.step));
        this.stop();
        this.goTo(index < 0 ? this.frames.length : index + 1);
    }
}

new Page(JSON.parse(document.getElementById('drawing').textContent));
