/* The end of a program that prints results: what could not be written must not end as a success. */
#ifndef GRADWEIR_COMMON_PRINTED_H
#define GRADWEIR_COMMON_PRINTED_H

/* Flushes stdout. The exit status: `code`, or 1 instead of 0, with a line on stderr, when some of
 * it was lost. */
int printed(const char *program, int code);

#endif
