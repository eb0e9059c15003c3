/** Read the document of `ui` through the API server's proxy to the Service. */

import { ApiProxy } from '@kinvolk/headlamp-plugin/lib';
import { UiOverview } from './api';

/** The version of the document that this plugin reads. */
const VERSION = 1;

/** Milliseconds to wait for an answer: the first read of a large cluster takes tens of seconds. */
const TIMEOUT = 60_000;

/**
 * The API server uses `Authorization` itself and removes it before its proxy sends a request on. So the token goes in a
 * header of its own.
 */
const TOKEN_HEADER = 'X-Ttl-Authorization';

/**
 * The ports of the Service `ui`, as the API server's proxy names them: with the component `ui/tls`, and without it. The
 * Service has one of them. HTTPS comes first, so that no token is sent over HTTP if the Service has a port for HTTPS.
 */
const TARGETS = ['https:ui:https', 'ui:http'];

/** The installation in a namespace, and the token of the user who reads. */
export interface Connection {
  namespace: string;
  token: string;
  /** The port that answered last. */
  target?: string;
}

/**
 * The connection of each cluster. It is in memory only, and ends with the browser tab. The token of a cluster is never
 * sent to another cluster.
 */
export const connections = new Map<string, Connection>();

/**
 * Read the document.
 *
 * @param cluster Its name in Headlamp.
 * @throws Error What the API server or `ui` answered.
 */
export async function readOverview(cluster: string, connection: Connection): Promise<UiOverview> {
  const refusals: string[] = [];
  for (const target of new Set([connection.target ?? TARGETS[0], ...TARGETS])) {
    try {
      const found = await readTarget(cluster, connection, target);
      connection.target = target;
      return found;
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (!isRefused(message, target)) {
        throw new Error(explain(message));
      }
      refusals.push(`${target}: ${message}`);
    }
  }
  throw new Error(`the API server sends no request to the Service ui. ${refusals.join('. ')}`);
}

async function readTarget(cluster: string, { namespace, token }: Connection, target: string): Promise<UiOverview> {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/services/${target}/proxy/api/v1/overview`;
  const headers = { [TOKEN_HEADER]: `Bearer ${token}` };
  const options = { cluster, headers, timeout: TIMEOUT, isJSON: false, cache: 'no-store' as const };
  // No logout: a rejected token of the page says nothing about the user of Headlamp.
  const response: Response = await ApiProxy.request(path, options, false);
  const found: UiOverview = await response.json();
  if (found.version !== VERSION) {
    throw new Error(`expected version ${VERSION} of the document, got ${found.version}: use the plugin of that version`);
  }
  return found;
}

/**
 * Return whether the API server itself refused the request, so that no Pod got the token: the user has no right on the
 * port, or the Service has no such port. The API server gives one answer for a port without a ready Pod and for no port.
 * Any other failure, such as one of TLS, must not lead to HTTP.
 */
function isRefused(message: string, target: string): boolean {
  const services = [target, 'ui'].map(name => `no endpoints available for service "${name}"`);
  return [`services "${target}" is forbidden`, ...services].some(words => message.includes(words));
}

/** Return the message of `ui` if there is one: Headlamp puts the body of an answer after the status. */
function explain(message: string): string {
  try {
    return JSON.parse(message.slice(message.indexOf('{'))).error ?? message;
  } catch {
    return message;
  }
}
