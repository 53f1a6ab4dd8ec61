/* Numbers of the phases; written by `python -m tuiadvisor.phases`, never by hand. */
enum { DATA_WAIT = 0, H2D = 1, FORWARD = 2, BACKWARD = 3, COMM_EXPOSED = 4, OPTIMIZER = 5, CHECKPOINT = 6, EVAL = 7, PIPELINE_IDLE = 8, OTHER = 9 };
enum { NUM_PHASES = 10 };
#define BEGINS_ITERATION (1 << DATA_WAIT | 1 << FORWARD | 1 << BACKWARD | 1 << EVAL | 1 << PIPELINE_IDLE)
#define ABSORBING (1 << CHECKPOINT | 1 << EVAL)
