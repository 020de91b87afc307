/* penstock/simulate.h - the subjects of `penstock simulate`, one file each.
 *
 * Called by: penstock/simulate.c.
 * Thread:    main.
 *
 * To add one: a row in simulate.c, a file penstock/simulate_NAME.c with the function, its name here
 * and in meson.build. Its args_spec has the verb "simulate NAME"; argv[0] is the subject's name.
 */
#ifndef PENSTOCK_SIMULATE_H
#define PENSTOCK_SIMULATE_H

int simulate_jobs(int argc, char **argv);
int simulate_placer(int argc, char **argv);

#endif
