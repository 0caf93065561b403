export const name = "connector";
