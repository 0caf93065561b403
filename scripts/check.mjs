/** @returns {Promise<number>} */
export async function check() {
  return 0;
}
