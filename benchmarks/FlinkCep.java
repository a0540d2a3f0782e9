package peers;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.channels.FileChannel;
import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.eventtime.TimestampAssigner;
import org.apache.flink.api.common.eventtime.TimestampAssignerSupplier;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkGeneratorSupplier;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FilterFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFilterFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * The job of flink_cep_peer.py, which compiles this with Janino: no lambdas, and classes without type parameters.
 *
 * An event is its position, the cheapest form for Flink; its type and its x are looked up in files in memory.
 */
public class FlinkCep {
    /**
     * Add the job to an environment: it counts all matches of a sequence in the first events of a folder.
     *
     * With a number in `above`, the x of the last event must be above that of the first plus the number.
     */
    public static void plan(
        StreamExecutionEnvironment environment,
        String folder,
        long events,
        List types,
        List bounds,
        long milliseconds,
        Double above
    ) {
        Step[] steps = new Step[types.size()];
        Pattern pattern = null;
        for (int i = 0; i < steps.length; i++) {
            steps[i] = new Step(folder, ((Integer) types.get(i)).intValue(), ((Double) bounds.get(i)).doubleValue());
            pattern = i == 0
                ? Pattern.begin("0", AfterMatchSkipStrategy.noSkip())
                : pattern.followedByAny(String.valueOf(i));
            pattern = above != null && i == steps.length - 1
                ? pattern.where(new Above(steps[i], above.doubleValue()))
                : pattern.where(steps[i]);
        }
        pattern = pattern.within(Duration.ofMillis(milliseconds));
        DataStream stream = environment
            .fromSource(new NumberSequenceSource(0L, events - 1L), new Time(), "events", Types.LONG)
            .filter(new Relevant(steps));
        CEP.pattern(stream, pattern)
            .process(new Match(), Types.BOOLEAN)
            .filter(new Count())
            .sinkTo(new DiscardingSink());
    }

    /** Condition of a step: the event is of one type, and its x below a bound. */
    public static class Step extends SimpleCondition {
        private final String folder;
        private final int type;
        private final double below;
        private transient ByteBuffer types;
        private transient DoubleBuffer x;

        public Step(String folder, int type, double below) {
            this.folder = folder;
            this.type = type;
            this.below = below;
        }

        private ByteBuffer mapped(String name) throws IOException {
            RandomAccessFile file = new RandomAccessFile(new File(this.folder, name), "r");
            try {
                return file.getChannel().map(FileChannel.MapMode.READ_ONLY, 0L, file.length());
            } finally {
                file.close();
            }
        }

        public boolean filter(Object event) throws Exception {
            if (this.types == null) {
                this.types = this.mapped("types");
                this.x = this.mapped("x").order(ByteOrder.nativeOrder()).asDoubleBuffer();
            }
            int position = ((Long) event).intValue();
            return this.types.get(position) == this.type && this.x.get(position) < this.below;
        }

        double value(Object event) {
            return this.x.get(((Long) event).intValue());
        }
    }

    /** Iterative condition of the last step: its own, and that its x is above that of the first step plus a number. */
    public static class Above extends IterativeCondition {
        private final Step step;
        private final double more;

        public Above(Step step, double more) {
            this.step = step;
            this.more = more;
        }

        public boolean filter(Object event, IterativeCondition.Context context) throws Exception {
            if (!this.step.filter(event)) {
                return false;
            }
            Iterator firsts = context.getEventsForPattern("0").iterator();
            return this.step.value(event) > this.step.value(firsts.next()) + this.more;
        }
    }

    /** Filter of the events that may be part of a match: the others need not reach the pattern. */
    public static class Relevant implements FilterFunction {
        private final Step[] steps;

        public Relevant(Step[] steps) {
            this.steps = steps;
        }

        public boolean filter(Object event) throws Exception {
            for (int i = 0; i < this.steps.length; i++) {
                if (this.steps[i].filter(event)) {
                    return true;
                }
            }
            return false;
        }
    }

    /** Time of an event: its position, in milliseconds; each 100th event emits a watermark. */
    public static class Time implements WatermarkStrategy, WatermarkGenerator, TimestampAssigner {
        public TimestampAssigner createTimestampAssigner(TimestampAssignerSupplier.Context context) {
            return this;
        }

        public WatermarkGenerator createWatermarkGenerator(WatermarkGeneratorSupplier.Context context) {
            return this;
        }

        public long extractTimestamp(Object event, long time) {
            return ((Long) event).longValue();
        }

        public void onEvent(Object event, long time, WatermarkOutput output) {
            if (time % 100L == 0L) {
                output.emitWatermark(new Watermark(time));
            }
        }

        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    /** Output of a match: TRUE, once Flink has formed the map of all its events. */
    public static class Match extends PatternProcessFunction {
        public void processMatch(Map events, PatternProcessFunction.Context context, Collector output) {
            output.collect(Boolean.TRUE);
        }
    }

    /** Counter of matches, which passes none on; a class of its own, as functions of FlinkCEP have no accumulators. */
    public static class Count extends RichFilterFunction {
        private final LongCounter found = new LongCounter();

        public void open(OpenContext context) {
            this.getRuntimeContext().addAccumulator("found", this.found);
        }

        public boolean filter(Object match) {
            this.found.add(1L);
            return false;
        }
    }
}
