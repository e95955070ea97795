/* SPDX-License-Identifier: Apache-2.0
 *
 * The data of the page: the steps of all programs, the values that they compute, and the chunks that
 * every rank has at a moment. The tool that wrote the page has computed the values; this file only
 * moves them to the places to which steps write them. Nothing in this file touches the page.
 */
'use strict';

/* "chunk 2: from 0 + in 2 -> out 2, to 1/1 final" as an object. */
function parseStep(text) {
    const match = /^chunk (\d+): (.*?) ->(.*)$/.exec(text);
    const words = match[3].trim().split(' ').filter((word) => word !== '');
    const isFlag = (word) => word === 'final' || word === 'with_next';
    const outs = words.filter((word) => !isFlag(word)).join(' ');
    const parseOperand = (operand) => {
        const [kind, place] = operand.trim().split(' ');
        const [index, lane] = place.split('/');
        return {kind, index: Number(index), lane: Number(lane || 0)};
    };
    return {
        chunk: Number(match[1]),
        ins: match[2].split('+').map(parseOperand),
        outs: outs === '' ? [] : outs.split(',').map(parseOperand),
        isFinal: words.includes('final'),
    };
}

const isReceived = (operand) => operand.kind === 'from' || operand.kind === 'placed';
const isSent = (operand) => operand.kind === 'to' || operand.kind === 'into';
const fifoName = (from, to, lane) => `${from}>${to}/${lane}`;

/* All steps of all ranks in one list. Number i of the list also knows its place in the programs. */
function listSteps(drawing) {
    const steps = [];
    drawing.programs.forEach((program, rank) => {
        program.workers.forEach((worker, workerIndex) => {
            worker.text.forEach((text, index) => {
                const step = parseStep(text);
                step.rank = rank;
                step.worker = workerIndex;
                step.index = index;
                step.text = text;
                step.round = worker.rounds[index];
                step.value = worker.values[index];
                steps.push(step);
            });
        });
    });
    return steps;
}

/* The values by number. Value 0 is "nothing". Results are filled in order: the operands of a result
 * have lower numbers. */
function listValues(drawing) {
    const values = [{ranks: [], chunk: -1, isFinal: false, text: 'nothing'}];
    for (const [rank, chunk] of drawing.inputs)
        values.push({ranks: [rank], chunk, isFinal: false, text: String(rank)});
    for (const [isFinal, ...operands] of drawing.results) {
        const parts = operands.map((operand) => values[operand]);
        const ranks = [].concat(...parts.map((part) => part.ranks)).sort((a, b) => a - b);
        const text = parts.map((part) => part.text).join(' + ');
        values.push({ranks, chunk: parts[0].chunk, isFinal: isFinal === 1,
                     text: parts.length > 1 ? `(${text})` : text});
    }
    return values;
}

/* Groups the steps into frames, in order: by round, or by the time at which the steps end. Each
 * frame has its position on the x axis. If a call has several tiles, only the steps of the first
 * tile move the chunks in the picture. */
function framesByRound(drawing, steps) {
    const frames = [];
    for (let round = 0; round < drawing.rounds; round++)
        frames.push({at: round, steps: []});
    for (const step of steps)
        if (step.round >= 0)
            frames[step.round].steps.push(step);
    return frames;
}

function framesByTime(events) {
    const byEnd = new Map();
    for (const event of events) {
        if (event.tile !== 0)
            continue;
        if (!byEnd.has(event.end))
            byEnd.set(event.end, []);
        byEnd.get(event.end).push(event.step);
    }
    return [...byEnd.keys()].sort((a, b) => a - b)
        .map((end) => ({at: end, steps: byEnd.get(end)}));
}

/* The simulated steps as objects, with their times, their workers and the times at which their
 * slots arrive. */
function listEvents(drawing, steps) {
    if (drawing.times === null)
        return [];
    const byPlace = new Map(steps.map((step) => [`${step.rank}.${step.worker}.${step.index}`, step]));
    return drawing.times.steps.map(([rank, worker, index, tile, start, end, ...arrivals]) => {
        const step = byPlace.get(`${rank}.${worker}.${index}`);
        const sends = step.outs.filter(isSent);
        return {step, tile, start, end,
                slots: arrivals.map((arrival, i) => ({to: sends[i].index, arrival}))};
    });
}

/* The state of all ranks after some frames. `now` is the last result of a step on each chunk, `out`
 * is the rank's buffer, `waiting` counts the slots in each FIFO. */
class State {
    constructor(drawing, frames) {
        this.drawing = drawing;
        this.frames = frames;
        this.rewind();
    }

    rewind() {
        this.position = 0;
        this.now = this.drawing.start.map((values) => values.slice());
        this.out = this.drawing.start.map((values) => values.map(() => 0));
        this.waiting = new Map();
    }

    /* Show the state after so many frames. */
    seek(position) {
        const wanted = Math.max(0, Math.min(position, this.frames.length));
        if (wanted < this.position)
            this.rewind();
        while (this.position < wanted) {
            for (const step of this.frames[this.position].steps)
                this.apply(step);
            this.position++;
        }
    }

    apply(step) {
        const count = (fifo, change) => {
            const filled = (this.waiting.get(fifo) || 0) + change;
            if (filled === 0)
                this.waiting.delete(fifo);
            else
                this.waiting.set(fifo, filled);
        };
        this.now[step.rank][step.chunk] = step.value;
        for (const input of step.ins)
            if (isReceived(input))
                count(fifoName(input.index, step.rank, input.lane), -1);
        for (const output of step.outs) {
            if (isSent(output))
                count(fifoName(step.rank, output.index, output.lane), 1);
            if (output.kind === 'out')
                this.out[step.rank][output.index] = step.value;
            else if (output.kind === 'into')
                this.out[output.index][step.chunk] = step.value;
        }
    }

    /* The steps of the last frame that was applied. */
    lastSteps() {
        return this.position === 0 ? [] : this.frames[this.position - 1].steps;
    }
}

/* Is this value the one that the collective wants in OUT(chunk) of the rank? */
function isDone(drawing, values, rank, chunk, number) {
    const goal = drawing.goal[rank][chunk];
    if (goal === undefined || number === 0)
        return false;
    const [goalChunk, source] = goal;
    const value = values[number];
    if (value.chunk !== goalChunk)
        return false;
    return source >= 0 ? value.ranks.length === 1 && value.ranks[0] === source
                       : value.isFinal && value.ranks.length === drawing.ranks;
}

/* How many chunks of all OUT buffers are done, and how many there are. */
function countDone(drawing, values, state) {
    let done = 0, all = 0;
    drawing.goal.forEach((goals, rank) => goals.forEach((goal, chunk) => {
        all++;
        done += isDone(drawing, values, rank, chunk, state.out[rank][chunk]) ? 1 : 0;
    }));
    return {done, all};
}
