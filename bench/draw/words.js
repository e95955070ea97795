/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes steps, values and findings in words.
 */
'use strict';

/* "0, 1, 5 to 7" */
function describeRanks(ranks) {
    const parts = [];
    for (let i = 0; i < ranks.length;) {
        let end = i;
        while (end + 1 < ranks.length && ranks[end + 1] === ranks[end] + 1)
            end++;
        if (end - i < 2)
            for (let k = i; k <= end; k++)
                parts.push(String(ranks[k]));
        else
            parts.push(`${ranks[i]} to ${ranks[end]}`);
        i = end + 1;
    }
    return parts.join(', ');
}

function joinWords(words) {
    if (words.length < 2)
        return words.join('');
    return `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`;
}

function describeValue(drawing, value) {
    if (value.ranks.length === 0)
        return 'nothing that has a meaning';
    const noun = value.ranks.length === 1 ? 'rank' : 'ranks';
    if (!drawing.reduces)
        return `the input of ${noun} ${describeRanks(value.ranks)}, chunk ${value.chunk}`;
    if (value.ranks.length === drawing.ranks)
        return `the contributions of all ${drawing.ranks} ranks to chunk ${value.chunk}`;
    return `the contribution${value.ranks.length === 1 ? '' : 's'} of ${noun} ` +
        `${describeRanks(value.ranks)} to chunk ${value.chunk}`;
}

function describeInput(operand) {
    switch (operand.kind) {
    case 'from':
        return `what rank ${operand.index} sent`;
    case 'placed':
        return `what rank ${operand.index} placed in its output`;
    case 'in':
        return 'its own input';
    case 'out':
        return `its output chunk ${operand.index}`;
    default:
        return `its scratch area ${operand.index}`;
    }
}

function describeOutputs(step) {
    const peers = (kind) => step.outs.filter((output) => output.kind === kind)
        .map((output) => output.index).sort((a, b) => a - b);
    const sends = peers('to'), places = peers('into');
    const parts = [];
    if (step.outs.some((output) => output.kind === 'out'))
        parts.push('keeps it in its output');
    if (step.outs.some((output) => output.kind === 'scratch'))
        parts.push('keeps it aside');
    if (sends.length > 0)
        parts.push(`sends it to rank${sends.length > 1 ? 's' : ''} ${describeRanks(sends)}`);
    if (places.length > 0)
        parts.push(`writes it into the output of rank${places.length > 1 ? 's' : ''} ` +
            describeRanks(places));
    return parts.length === 0 ? 'only waits for it' : joinWords(parts);
}

/* "Rank 1 takes what rank 0 sent and its own input, adds them, sends it to rank 2." */
function describeStep(step) {
    const verb = step.ins.length > 1 ? 'adds up' : 'takes';
    return `Rank ${step.rank} ${verb} ${joinWords(step.ins.map(describeInput))} ` +
        `(chunk ${step.chunk}) and ${describeOutputs(step)}.`;
}

function describeResult(drawing, values, step) {
    const value = values[step.value];
    const order = value.ranks.length > 1 ? ` Order: ${value.text}.` : '';
    if (step.round < 0)
        return 'This step never runs: what it waits for does not come.';
    return `It holds ${describeValue(drawing, value)}.${order}` +
        (step.isFinal ? ' Complete here for the first time.' : '');
}

/* The first missing slot for which a step that never runs waits. */
function describeWait(step, state) {
    for (const input of step.ins)
        if (isReceived(input) && !state.waiting.has(fifoName(input.index, step.rank, input.lane)))
            return `waits for a slot from rank ${input.index}`;
    for (const output of step.outs)
        if (isSent(output))
            return `waits for a free slot to rank ${output.index}`;
    return 'waits for the step before it';
}

function describeFinding(finding) {
    const place = finding.rank < 0 || finding.text.startsWith('rank ') ? ''
        : ` at rank ${finding.rank}` +
          (finding.worker < 0 ? '' : `, worker ${finding.worker}, step ${finding.step}`) +
          (finding.chunk < 0 ? '' : `, output chunk ${finding.chunk}`);
    return `These programs are wrong${finding.in_place_only ? ' when called in place' : ''}` +
        `${place}: ${finding.text}`;
}

/* 1234567 ns as "1234.6 us" */
function describeTime(ns) {
    return ns < 1000 ? `${ns.toFixed(0)} ns`
        : ns < 1e6 ? `${(ns / 1000).toFixed(2)} us` : `${(ns / 1e6).toFixed(3)} ms`;
}

function describeBytes(bytes) {
    const units = ['B', 'KiB', 'MiB', 'GiB'];
    let unit = 0;
    while (bytes >= 1024 && unit + 1 < units.length) {
        bytes /= 1024;
        unit++;
    }
    return `${Number.isInteger(bytes) ? bytes : bytes.toFixed(1)} ${units[unit]}`;
}
