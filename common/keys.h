/* Key files: who I am, and whose keys are known.
 *
 * A key file is lines of three words; # begins a comment line:
 *
 *     secret NAME KEY       my own; one NAME may have only one
 *     public NAME KEY       somebody's; two for one NAME while they are changed
 *
 * A NAME is 1 to 63 letters, digits and . _ - (not in front); a KEY is Z85 text of 40 characters.
 * A folder stands for all its files NAME.public and for NAME.secret of whoever reads it, so that
 * one folder may serve a whole job on one machine, and a copy with fewer files each other machine.
 *
 * Who has NAME's key may call itself NAME/anything too: processes that share one key.
 *
 * The coordinator is `server`, shard N in a process of its own is `shard-N`, everybody else is a
 * worker by that name.
 *
 * Files that others may write are refused, and so is a secret that others may read: mode 0600, or
 * 0640 when root owns it (how secrets are mounted into containers). */
#ifndef GRADWEIR_COMMON_KEYS_H
#define GRADWEIR_COMMON_KEYS_H

#include "common/control.h"

#define KEYS_SERVER "server"

enum { KEYS_MAX = 512, KEY_TEXT_SIZE = 41 };

struct key_table;

bool keys_name_good(const char *name);

/* path: folder or file. mine: whose secret is wanted; "": the only one that is there. ERR_IO with
 * errno's text; ERR_INVALID names file, line and what is wrong with it, or the name that has no
 * secret there. */
gradweir_status keys_read(const char *path, const char *mine, struct key_table **keys);

/* The same of text that is in memory and is taken apart here; path is what complaints name. */
gradweir_status keys_parse(const char *path, const char *mine, char *text, struct key_table **keys);
void keys_free(struct key_table *keys); /* NULL is accepted */

const char *keys_name(const struct key_table *keys);                     /* of my own */
const char *keys_secret(const struct key_table *keys);                   /* my own */
const char *keys_public(const struct key_table *keys, const char *name); /* NULL: not known */

/* For a listener: whoever is known may come in, but my own name. For a client: the server's key;
 * ERR_INVALID when it is not known. The options borrow from the table. */
void keys_listen(const struct key_table *keys, struct control_options *options);
gradweir_status keys_connect(const struct key_table *keys, struct control_options *options);

/* Makes NAME.secret and NAME.public in the folder (made with mode 0700 when it is not there), both
 * with mode 0600. ERR_STATE, and nothing is touched, when one of them is there already. */
gradweir_status keys_generate(const char *folder, const char *name);

/* `keygen DIR NAME...` as a program's subcommand: arguments after the word itself. Tells what it
 * has made on stdout, and why not on stderr; an exit status. */
int keys_main(const char *program, int count, const char *const *arguments);

#endif
