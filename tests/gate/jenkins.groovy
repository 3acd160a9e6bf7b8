// Execute the stage without a GPU of a declarative Jenkinsfile: groovy jenkins.groovy FILE
// Its steps run in bash, in the current folder. Prints "unstable" or "failed" with the message, as Jenkins marks a build.
import org.codehaus.groovy.control.CompilerConfiguration

abstract class Stage extends Script {
    static final Set RUN = ['pipeline', 'stages', 'steps']

    def methodMissing(String name, arguments) {
        def body = arguments ? arguments[-1] : null
        if (body instanceof Closure && (name in RUN || name == 'stage' && arguments[0] == 'gate without a GPU')) {
            body.delegate = this
            body.resolveStrategy = Closure.DELEGATE_FIRST
            body.call()
        }
    }

    def propertyMissing(String name) { name }

    def sh(Map options) {
        def status = bash(options.script)
        if (!options.returnStatus && status != 0) { error("a step ended with status ${status}") }
        return status
    }

    def sh(String script) { sh(script: script) }

    def unstable(String message) { println("unstable: ${message}") }

    def error(String message) { println("failed: ${message}"); System.exit(1) }

    private int bash(String script) {
        new ProcessBuilder('bash', '-xe', '-c', script.toString()).inheritIO().start().waitFor()
    }
}

def configuration = new CompilerConfiguration(scriptBaseClass: Stage.name)
new GroovyShell(this.class.classLoader, new Binding(), configuration).evaluate(new File(args[0]))
