/* Memory is taken at start: pages are made real then, so that a machine that has promised too much
 * says so at once, and no process is killed for it hours later. */
#ifndef GRADWEIR_COMMON_POPULATE_H
#define GRADWEIR_COMMON_POPULATE_H

#include "common/status.h"

#include <stdint.h>

/* Bytes that this process can still take: what the machine has (MemAvailable), and what is left to
 * its control group (v2, as a container sees its own), whichever is less; UINT64_MAX when neither
 * can be read. */
uint64_t populate_available(void);

/* Makes every page of a writable mapping real, in large pages where the kernel has them: arrays
 * that are read through in one go miss the page tables' cache at each small one. Contents stay.
 * Pages of [memory, memory + bytes), which starts at a page border. ERR_NO_MEMORY names both
 * numbers when more is wanted than is there, and then nothing has been taken. */
gradweir_status populate_memory(void *memory, uint64_t bytes);

/* Asks for huge pages under a fresh large mapping, where the kernel gives them on request: floats
 * that are read and written in a row then cost fewer look-ups and faults. It may say no. */
void populate_huge(void *memory, uint64_t bytes);

#endif
