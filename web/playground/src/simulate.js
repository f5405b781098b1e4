export function begin() {}
export function show() {}
